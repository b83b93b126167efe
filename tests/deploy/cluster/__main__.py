"""The chart on a real Kubernetes under load: `make cluster`, as root on Debian.

Installs it, kills a container, deletes a pod, upgrades, evicts, rolls back, scales, and runs the audit's CronJob. Every
output is checked meanwhile. Prints what happened with times, and exits with 1 if anything was not as it must be.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.properties import Node
from tests.deploy.cluster.load import Load
from tests.deploy.dockerfile import ROOT
from tests.support.local_cluster import LocalCluster

HERE = Path(__file__).parent
BRIDGE = "10.213.0.1"
PARTITIONS = 6
STARTED = time.monotonic()
Step = Callable[[], object]


def say(text: str) -> None:
    sys.stdout.write(f"{time.monotonic() - STARTED:6.1f} s  {text}\n")
    sys.stdout.flush()


def shell(*command: str | Path, given: str | None = None, fails: bool = False) -> str:
    """Run `command`, and return its output. Raises if it fails, or with `fails` if it does not."""
    done = subprocess.run(list(map(str, command)), input=given, capture_output=True, text=True, check=False)
    if (done.returncode != 0) != fails:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class Cluster:
    """The node in `folder`, and the chart in it."""

    def __init__(self, folder: Path, servers: str) -> None:
        self._folder = folder
        self._servers = servers
        os.environ["KUBECONFIG"] = str(folder / "kubeconfig")

    def kubectl(self, *arguments: str, given: str | None = None, fails: bool = False) -> str:
        return shell("kubectl", "-n", "prod", *arguments, given=given, fails=fails)

    def helm(self, *arguments: str) -> str:
        return shell(ROOT / ".jars/helm/helm", "-n", "prod", *arguments)

    def import_image(self, name: str) -> None:
        saved = self._folder / "image.tar"
        saved.unlink(missing_ok=True)
        shell("podman", "save", "-q", name, "-o", saved)
        shell("ctr", "-a", self._folder / "containerd.sock", "-n", "k8s.io", "images", "import", saved)

    def run_once(self, name: str, *command: str) -> None:
        """Run a command of the image to its end."""
        self.kubectl("run", name, "--image=localhost/ledger:v1", "--restart=Never", "--command", "--", *command)
        self.kubectl("wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")

    def connects(self, namespace: str, *, refused: bool = False) -> None:
        """A pod of the namespace connects to the replicas, or waits in vain for an answer."""
        name = f"connect-{time.monotonic_ns()}"
        code = "import socket; socket.create_connection(('ledger-http.prod.svc', 8080), 5)"
        command = ("--image=localhost/ledger:v1", "--restart=Never", "--command", "--", "python3", "-c", code)
        self.kubectl("run", name, "-n", namespace, *command)
        ended = f"--for=jsonpath={{.status.phase}}={'Failed' if refused else 'Succeeded'}"
        self.kubectl("wait", f"pod/{name}", "-n", namespace, ended, "--timeout=120s")
        if refused and "TimeoutError" not in (said := self.kubectl("logs", name, "-n", namespace)):
            raise SystemExit(f"a pod of {namespace}: {said}")

    def install(self, do: str, *values: str) -> None:
        settings = f'[kafka]\nbootstrap.servers = ["{self._servers}"]\n\n[standby]\nreplicas = 1\n'
        self.helm(
            *(do, "ledger", str(ROOT / "deploy/helm"), "--set", "image.repository=localhost/ledger"),
            *(
                "--set",
                "http.tokensSecret=ledger-http,http.tlsSecret=ledger-tls",
                "--set-string",
                f"settings={settings}",
            ),
            *("--set", "resources.requests.cpu=100m,resources.requests.memory=100Mi"),
            *(part for value in values for part in ("--set", value)),
        )
        self.rolled_out()

    def rolled_out(self) -> None:
        self.kubectl("rollout", "status", "statefulset/ledger", "--timeout=300s")

    def kill(self, pod: str) -> None:
        """SIGKILL the pod's process, as the kernel does when memory is short."""
        path = "{.status.containerStatuses[0].containerID}"
        container = self.kubectl("get", "pod", pod, "-o", f"jsonpath={path}").rpartition("/")[2]
        shell("ctr", "-a", self._folder / "containerd.sock", "-n", "k8s.io", "task", "kill", "-s", "SIGKILL", container)

    def evict(self, pod: str, *, refused: bool = False) -> None:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "prod"}}
        path = f"/api/v1/namespaces/prod/pods/{pod}/eviction"
        told = self.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction), fails=refused)
        if refused and "disruption budget" not in told:
            raise SystemExit(f"evicting {pod}: {told}")


def made_secrets(cluster: Cluster, folder: Path) -> None:
    """The tokens, and a certificate as cert-manager would make it."""
    (folder / "tokens").write_text(os.urandom(32).hex() + "\n", encoding="utf-8")
    names = "DNS:*.ledger.prod.svc.cluster.local,DNS:ledger-http.prod.svc,IP:127.0.0.1"
    shell(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ledger"),
        *("-keyout", folder / "tls.key", "-out", folder / "tls.crt", "-addext", f"subjectAltName={names}"),
    )
    shutil.copy(folder / "tls.crt", folder / "ca.crt")
    cluster.kubectl("create", "secret", "generic", "ledger-http", f"--from-file={folder}/tokens")
    files = [f"--from-file={folder}/{name}" for name in ("tls.crt", "tls.key", "ca.crt")]
    cluster.kubectl("create", "secret", "generic", "ledger-tls", *files)


async def story(cluster: Cluster, load: Load) -> None:
    async def passes(what: str, *steps: Step) -> None:
        """Carry out the steps of what happens, and say how long outputs of a partition were missing meanwhile."""
        load.gap_s()
        for step in steps:
            await asyncio.to_thread(step)
        await asyncio.sleep(3)  # the last outputs arrive
        say(f"{what}: longest time without outputs of a partition {load.gap_s():.1f} s")
        if load.wrong:
            raise SystemExit("\n".join(load.wrong[:10]))

    await passes("nothing happened, but `helm test`", partial(cluster.helm, "test", "ledger"))
    await passes(
        "pods of another namespace reached no replica, those of `monitoring` did",
        partial(shell, "kubectl", "create", "namespace", "monitoring"),
        partial(shell, "kubectl", "create", "namespace", "other"),
        partial(cluster.connects, "monitoring"),
        partial(cluster.connects, "other", refused=True),
    )
    restarted = "jsonpath={.status.containerStatuses[0].restartCount}=1"
    await passes(
        "a process was killed by SIGKILL and restarted",
        partial(cluster.kill, "ledger-0"),
        partial(cluster.kubectl, "wait", "pod/ledger-0", f"--for={restarted}", "--timeout=60s"),
        cluster.rolled_out,
    )
    await passes("a pod was deleted", partial(cluster.kubectl, "delete", "pod", "ledger-1"), cluster.rolled_out)
    await passes("upgraded to version 2", partial(cluster.install, "upgrade", "image.tag=v2"))
    await passes(
        "a pod was evicted from the node as by a drain, and a second one not while the first had no place",
        partial(shell, "kubectl", "cordon", "node1"),
        partial(cluster.evict, "ledger-2"),
        partial(cluster.evict, "ledger-1", refused=True),
        partial(shell, "kubectl", "uncordon", "node1"),
        cluster.rolled_out,
    )
    await passes(
        "rolled back to version 1", partial(cluster.helm, "rollback", "ledger", "1", "--wait"), cluster.rolled_out
    )
    two = ("image.tag=v1", "replicas=2")
    await passes("scaled from three to two", partial(cluster.install, "upgrade", *two))
    audit = ("jobs.audit.enabled=true", "jobs.image.repository=localhost/ledger", "jobs.image.tag=v1")
    engine = "jobs.audit.args={--engine,python,--level,changes}"
    await passes(
        "an audit ran from its CronJob",
        partial(cluster.install, "upgrade", *two, *audit, engine),
        partial(cluster.kubectl, "create", "job", "audit", "--from=cronjob/ledger-audit"),
        partial(cluster.kubectl, "wait", "job/audit", "--for=condition=Complete", "--timeout=180s"),
    )
    say(cluster.kubectl("logs", "job/audit"))
    say(cluster.kubectl("get", "pods,pdb,networkpolicy,cronjob"))


async def main(folder: Path) -> None:
    port, controller = free_ports(2)
    async with LocalCluster(1, nodes=[Node(1, port, controller, host=BRIDGE)]) as broker:
        servers = broker.bootstrap_servers
        cluster = Cluster(folder, servers)
        shell("kubectl", "create", "namespace", "prod")
        for image in ("localhost/ledger:v1", "localhost/ledger:v2"):
            cluster.import_image(image)
        made_secrets(cluster, folder)
        await make_topics(servers)
        cluster.run_once("topics", "snapreplay", "topics", "ensure", "app.py", "--bootstrap-servers", servers)
        cluster.run_once("init", "snapreplay", "init", "app.py", "--bootstrap-servers", servers)
        say("topics and batch 0 were made by pods of the image")
        await asyncio.to_thread(cluster.install, "install", "image.tag=v1")
        say("three replicas are Ready by their probes")
        load = Load(servers)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            await asyncio.sleep(5)
            await story(cluster, load)
            load.end()
        say(f"{load.sent:,} payments, {load.received:,} outputs, each with the right balance")
        cluster.helm("uninstall", "ledger")
        shell("kubectl", "delete", "namespace", "prod", "--timeout=120s")


async def make_topics(servers: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("payments", "balances")])
    finally:
        await admin.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve()))
