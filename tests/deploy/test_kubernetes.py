"""deploy/kubernetes: what can be known of it without a cluster."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from snapreplay.api.credentials import TlsFiles, tokens_in
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.settings import load_settings
from snapreplay.service.control.operations import Role
from tests.api.test_tls import Authority
from tests.deploy.dockerfile import ROOT, command, last, named, stages
from tests.deploy.prometheus import prometheus
from tests.support.fake_control import FakeControl
from tests.support.served import served, until

FOLDER = ROOT / "deploy/kubernetes"
RESOURCES = {path.stem: list(yaml.safe_load_all(path.read_text(encoding="utf-8"))) for path in FOLDER.glob("*.yaml")}
FILES: dict[str, dict[str, Any]] = {name: each[0] for name, each in RESOURCES.items() if len(each) == 1}
SERVICE: dict[str, dict[str, Any]] = {each["kind"]: each for each in RESOURCES["service"]}
CRON: dict[str, dict[str, Any]] = {name: FILES[f"{name}-cronjob"]["spec"] for name in ("audit", "compact")}
PODS: dict[str, dict[str, Any]] = {name: job["jobTemplate"]["spec"]["template"]["spec"] for name, job in CRON.items()}
CONTAINERS: dict[str, dict[str, Any]] = {name: pod["containers"][0] for name, pod in PODS.items()}
APPLICATION: dict[str, Any] = FILES["audit-spark-application"]["spec"]
FINAL = stages((ROOT / "Dockerfile").read_text(encoding="utf-8"))[-1]
SPARK = named((ROOT / "Dockerfile").read_text(encoding="utf-8"), "spark")
ENTRYPOINT = ROOT / "deploy/spark-entrypoint.sh"


def test_these_are_all() -> None:
    """A file that is added is looked at here."""
    assert set(FILES) == {"audit-cronjob", "audit-spark-application", "compact-cronjob"}
    assert set(RESOURCES) == {*FILES, "service", "strimzi"}


CUSTOM = {"audit-spark-application", "strimzi"}  # test_custom_resources.py
STANDARD = [one for name, each in RESOURCES.items() if name not in CUSTOM for one in each]


@pytest.mark.parametrize("version", ["1.31", "1.37"])
@pytest.mark.parametrize("resource", STANDARD, ids=lambda each: f"{each['kind']}/{each['metadata']['name']}")
def test_kubernetes_has_every_field(resource, version) -> None:
    """By the schemas of an older and of the newest version. A misspelt field is refused."""
    kubernetes_validate.validate(resource, version, strict=True)
    wrong = {**resource, "spec": {**resource["spec"], "serviceAcount": "x"}}
    with pytest.raises(kubernetes_validate.ValidationError, match="serviceAcount"):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_a_replica_runs_as_the_image_and_the_service_expect() -> None:
    """Its settings exist, its probes are paths of the API, and it has time for its stop."""
    pod = SERVICE["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    values = {each["name"]: each.get("value", "ledger-0") for each in container["env"]}
    settings = load_settings(environment=values)
    assert settings.timeouts.shutdown_ms / 1000 + 2 < pod["terminationGracePeriodSeconds"]
    assert settings.instance_id == "ledger-0"
    paths = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))["paths"]
    assert all(container[f"{each}Probe"]["httpGet"]["path"] in paths for each in ("startup", "liveness", "readiness"))
    (port,) = container["ports"]
    assert port == {"name": "http", "containerPort": settings.http.port}
    assert pod["securityContext"]["runAsUser"] == int(last(FINAL, "USER").split(":")[0])
    (mount,) = container["volumeMounts"]
    assert Path(settings.http.token_file).parent == Path(mount["mountPath"])
    assert CliRunner().invoke(app, ["run", *container["args"], "--help"]).exit_code == 0


README = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
WITH_TLS, PROMETHEUS = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_a_replica_with_tls_is_as_the_readme_says(version) -> None:
    """Its fields and settings exist, its files are where they are mounted, and a name is known before it is used."""
    replica = copy.deepcopy(SERVICE["StatefulSet"])
    pod = replica["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        container[probe]["httpGet"]["scheme"] = "HTTPS"
    container["env"] += WITH_TLS["env"]
    container["volumeMounts"] += WITH_TLS["volumeMounts"]
    pod["volumes"] += WITH_TLS["volumes"]
    kubernetes_validate.validate(replica, version, strict=True)
    values: dict[str, str] = {}
    for each in container["env"]:
        given = each.get("value", "ledger-0")
        values[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: values[name[1]], given)
    http = load_settings(environment=values).http
    (mount,) = WITH_TLS["volumeMounts"]
    assert {Path(file).parent for file in TlsFiles.of(http) if file} == {Path(mount["mountPath"])}
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    service, namespace = replica["spec"]["serviceName"], replica["metadata"]["namespace"]
    assert http.advertised_url == f"https://ledger-0.{service}.{namespace}.svc.cluster.local:{http.port}"


@pytest.mark.whole
async def test_prometheus_asks_with_the_token_of_a_viewer_and_by_tls(tmp_path) -> None:
    """As the page for operators says, with other paths and another address."""
    (lines,) = re.findall(r"```sh\n(openssl .*?\n)kubectl", README, re.DOTALL)
    await asyncio.to_thread(subprocess.run, ["/bin/bash", "-ec", lines], cwd=tmp_path, check=True)
    authority = Authority(tmp_path, "any")
    certificate, key = await asyncio.to_thread(authority.signed, "server")
    tokens = str(tmp_path / "tokens")
    assert [each.asker for each in tokens_in(Path(tokens))] == [("line 1", Role.ADMIN), ("prometheus", Role.VIEWER)]
    (scrape,) = PROMETHEUS["scrape_configs"]
    (targets,) = scrape.pop("dns_sd_configs")
    assert targets["names"] == ["ledger.prod.svc.cluster.local"]
    assert scrape.pop("job_name") == "ledger"
    scrape["authorization"]["credentials_file"] = str(tmp_path / Path(scrape["authorization"]["credentials_file"]).name)
    scrape["tls_config"].update(ca_file=authority.file, server_name="127.0.0.1")
    settings = HttpSettings(port=0, token_file=tokens, tls_certificate_file=certificate, tls_key_file=key)
    async with served(FakeControl(), settings) as url:
        with prometheus(tmp_path, url.removeprefix("https://"), **scrape) as asked:

            async def is_up() -> bool:
                return await asyncio.to_thread(asked.value, "up") == 1

            await until(is_up, "it is asked with success")


def test_everything_is_about_the_same_pods() -> None:
    """Selectors, names and ports fit each other."""
    spec = SERVICE["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    selectors = [spec["selector"]["matchLabels"], SERVICE["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]]
    selectors += [SERVICE["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]]
    services = {each["metadata"]["name"]: each["spec"] for each in RESOURCES["service"] if each["kind"] == "Service"}
    assert all(each == labels for each in [*selectors, *(one["selector"] for one in services.values())])
    assert services[spec["serviceName"]]["clusterIP"] == "None"
    assert {each["metadata"]["namespace"] for each in RESOURCES["service"]} == {"prod"}
    environment = {each["name"]: each.get("value") for each in spec["template"]["spec"]["containers"][0]["env"]}
    assert {name.split(".")[0] for name in environment["SNAPREPLAY_HTTP__ALLOWED_HOSTS"].split(",")} <= set(services)


@pytest.mark.parametrize(
    "words", [*(each["args"][1:] for each in CONTAINERS.values()), APPLICATION["arguments"]], ids=[*CONTAINERS, "spark"]
)
def test_every_command_exists(words) -> None:
    """With these options, in a form for machines. Audits record what they prove; the compaction waits for the owners,
    for less time than it may run."""
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0, result.output
    for option in (each for each in words if each.startswith("--")):
        assert option in result.output
    assert words[-2:] == ["--output", "json"]
    if words[0] == "audit":
        assert "--since-last" in words
    else:
        limit = CRON["compact"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
        assert 0 < float(words[words.index("--wait") + 1]) < limit


@pytest.mark.parametrize(
    "env", [*(each["env"] for each in CONTAINERS.values()), APPLICATION["driver"]["env"]], ids=[*CONTAINERS, "spark"]
)
def test_every_setting_exists(env) -> None:
    """As at start: no misspelt name."""
    settings = load_settings(environment={each["name"]: each["value"] for each in env})
    assert settings.bootstrap_servers == ["kafka-0:9092", "kafka-1:9092"]


@pytest.mark.parametrize(("name", "interval_seconds"), [("audit", 3600), ("compact", 1800)])
def test_a_job_is_not_retried_and_does_not_meet_the_next_one(name, interval_seconds) -> None:
    """The exit code is the verdict; the next turn is the next attempt."""
    job = CRON[name]
    assert job["concurrencyPolicy"] == "Forbid"
    assert job["jobTemplate"]["spec"]["backoffLimit"] == 0
    assert PODS[name]["restartPolicy"] == "Never"
    assert APPLICATION["restartPolicy"] == {"type": "Never"}
    minutes = re.fullmatch(r"([\d,]+)( \*){4}", job["schedule"])
    assert minutes is not None
    assert 3600 / len(minutes[1].split(",")) == interval_seconds
    assert job["jobTemplate"]["spec"]["activeDeadlineSeconds"] < interval_seconds


def test_the_jobs_do_not_start_at_the_same_minute() -> None:
    """Each needs a core, and they may share a node."""
    starts = [job["schedule"].split()[0].split(",") for job in CRON.values()]
    assert set(starts[0]).isdisjoint(starts[1])


def test_they_run_as_the_user_of_the_image() -> None:
    """Not root, with a file system that cannot be written to but for /tmp, which is also home."""
    user = int(last(SPARK, "USER").split(":")[0])
    contexts = [
        *(pod["securityContext"] for pod in PODS.values()),
        *(APPLICATION[p]["securityContext"] for p in ("driver", "executor")),
    ]
    assert {each["runAsUser"] for each in contexts} == {user}
    for container in CONTAINERS.values():
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert [each["mountPath"] for each in container["volumeMounts"]] == ["/tmp"]  # noqa: S108 - of the pod


@pytest.mark.parametrize(
    "pod", [*PODS.values(), SERVICE["StatefulSet"]["spec"]["template"]["spec"]], ids=[*PODS, "app"]
)
def test_a_namespace_of_the_restricted_standard_takes_them(pod) -> None:
    """As Kubernetes' pod security standards say it; and nobody has a token of the cluster, which none of them asks."""
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_program_is_where_the_image_has_it() -> None:
    """A file of the wheel, below where the image installs it; and the version of Spark is the locked one."""
    scheme, path = APPLICATION["mainApplicationFile"].split("://")
    assert scheme == "local"
    site = "/opt/snapreplay/lib/python3.11/site-packages"
    assert f"SPARK_HOME={site}/pyspark" in last(SPARK, "ENV")
    assert (ROOT / Path(path).relative_to(site)).is_file()
    assert f"pyspark=={APPLICATION['sparkVersion']}" in (ROOT / "requirements/spark.lock").read_text()


def test_the_image_calls_the_entry_point() -> None:
    """It is copied, may be run, and its default command says what there is."""
    assert any(rest.split()[0] == "deploy/spark-entrypoint.sh" for word, rest in SPARK if word == "COPY")
    assert ENTRYPOINT.stat().st_mode & 0o111
    assert command(SPARK, "ENTRYPOINT") == ["/opt/entrypoint.sh"]
    assert command(SPARK, "CMD")[:2] == ["snapreplay", "audit"]


SPARKS_WORDS = {
    "SPARK_HOME": "/spark",
    "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod-3",
    "SPARK_JAVA_OPT_0": "-Da=b c",
    "SPARK_JAVA_OPT_1": "-Dd=$HOME",
}


def called(tmp_path, *words, **env) -> list[str]:
    """Return what the entry point runs in place of itself: each program found first on its path says what it was
    given."""
    for name in ("java", "spark-submit"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        program.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run([ENTRYPOINT, *words], env={"PATH": path, **env}, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_an_executor_gets_all_that_spark_says(tmp_path) -> None:
    """Every word of the environment, options with blanks in one piece."""
    java, *words = called(tmp_path, "executor", **SPARKS_WORDS)
    assert java == f"{tmp_path}/java"
    assert words[:4] == ["-Da=b c", "-Dd=$HOME", "-Xms1g", "-Xmx1g"]
    assert words[4:6] == ["-cp", "/spark/conf:/spark/jars/*"]
    options = dict(zip(words[7::2], words[8::2], strict=True))
    assert options == {
        "--driver-url": SPARKS_WORDS["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "pod-3",
    }


def test_a_driver_is_a_spark_submit(tmp_path) -> None:
    """In client mode: the pod is the driver already."""
    words = called(tmp_path, "driver", "--properties-file", "p", "local:///a.py", **SPARKS_WORDS)
    assert words[0] == f"{tmp_path}/spark-submit"
    assert words[1:] == [
        *("--conf", "spark.driver.bindAddress=10.0.0.1", "--deploy-mode", "client"),
        *("--properties-file", "p", "local:///a.py"),
    ]


def test_anything_else_is_a_command(tmp_path) -> None:
    """As in the CronJob."""
    assert called(tmp_path, "echo", "a b") == ["a b"]
