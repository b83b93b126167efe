"""deploy/helm: the rendered chart, and what it refuses to render."""

import asyncio
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
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
from tests.deploy import chart
from tests.deploy.dockerfile import ROOT, last, stages
from tests.deploy.prometheus import prometheus
from tests.support.fake_control import FakeControl
from tests.support.served import served, until

RENDERED: list[dict[str, Any]] = list(yaml.safe_load_all(chart.RENDERED.read_text(encoding="utf-8")))
NAMED = {(each["kind"], each["metadata"]["name"]): each for each in RENDERED}
OF_KUBERNETES = [each for each in RENDERED if "monitoring" not in each["apiVersion"]]
OF_PROMETHEUS = [each for each in RENDERED if each not in OF_KUBERNETES]
JOBS = [each["spec"]["jobTemplate"]["spec"] for each in RENDERED if each["kind"] == "CronJob"]
README = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
REPLICA = NAMED["StatefulSet", "ledger"]["spec"]["template"]["spec"]

with_helm = pytest.mark.skipif(not chart.HELM, reason="needs helm: make helm")


def test_what_is_rendered_is_of_this_chart() -> None:
    """Who changes the chart renders it again: `python -m tests.deploy.chart`."""
    assert chart.RENDERED.read_text(encoding="utf-8").partition("\n")[0] == f"# {chart.digest()}"


@pytest.mark.parametrize("version", ["1.31", "1.37"])
@pytest.mark.parametrize("resource", OF_KUBERNETES, ids=lambda each: f"{each['kind']}/{each['metadata']['name']}")
def test_kubernetes_has_every_field(resource, version) -> None:
    """By the schemas of an older and of the newest version. A misspelt field is refused."""
    kubernetes_validate.validate(resource, version, strict=True)
    wrong = {**resource, ("data" if "data" in resource else "spec"): {"serviceAcount": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


@pytest.mark.parametrize("resource", OF_PROMETHEUS, ids=lambda each: each["kind"])
def test_the_prometheus_operator_has_every_field(resource) -> None:
    """By the schema that it publishes. A misspelt field is refused."""
    schema = json.loads((ROOT / f"tests/deploy/crds/{resource['kind']}.json").read_text(encoding="utf-8"))
    assert resource["apiVersion"] == schema["apiVersion"]
    jsonschema.validate(resource, schema)
    with pytest.raises(jsonschema.ValidationError, match="selctor"):
        jsonschema.validate({**resource, "spec": {**resource["spec"], "selctor": 1}}, schema)


def test_a_namespace_of_the_restricted_standard_takes_them() -> None:
    """As Kubernetes' pod security standards say it, as the user of the image; none has a token of the cluster."""
    user = int(last(stages((ROOT / "Dockerfile").read_text(encoding="utf-8"))[-1], "USER").split(":")[0])
    for pod in (REPLICA, *(job["template"]["spec"] for job in JOBS)):
        assert pod["automountServiceAccountToken"] is False
        context = pod["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"]) == (True, user)
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.whole
async def test_prometheus_asks_with_the_token_of_a_viewer_and_by_tls(tmp_path: Path) -> None:
    """As the page about deployment says, with other paths and another address."""
    (lines,) = re.findall(r"```sh\n(openssl .*?\n)kubectl", README, re.DOTALL)
    await asyncio.to_thread(subprocess.run, ["/bin/bash", "-ec", lines], cwd=tmp_path, check=True)
    authority = Authority(tmp_path, "any")
    certificate, key = await asyncio.to_thread(authority.signed, "server")
    tokens = str(tmp_path / "tokens")
    assert [each.asker for each in tokens_in(Path(tokens))] == [("line 1", Role.ADMIN), ("prometheus", Role.VIEWER)]
    (printed,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", README, re.DOTALL)
    (scrape,) = yaml.safe_load(printed)["scrape_configs"]
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


def test_a_replica_runs_as_the_service_expects(tmp_path: Path) -> None:
    """Its settings exist, its files are where they are mounted, and it has time for its stop."""
    (container,) = REPLICA["containers"]
    values: dict[str, str] = {}
    for each in container["env"]:
        values[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: values[name[1]], each.get("value", "ledger-0"))
    file = tmp_path / "snapreplay.toml"
    file.write_text(NAMED["ConfigMap", "ledger"]["data"]["snapreplay.toml"])
    settings = load_settings(config_file=file, environment=values)
    assert settings.standby.replicas == 1
    assert settings.timeouts.shutdown_ms / 1000 + 2 < REPLICA["terminationGracePeriodSeconds"]
    assert settings.http.advertised_url == "https://ledger-0.ledger.prod.svc.cluster.local:8080"
    mounts = {Path(each["mountPath"]) for each in container["volumeMounts"]}
    files = [settings.http.token_file, *filter(None, TlsFiles.of(settings.http))]
    files.append(container["args"][container["args"].index("--config") + 1])
    assert {Path(each).parent for each in files} == mounts
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in REPLICA["volumes"]}
    assert {container[f"{each}Probe"]["httpGet"]["scheme"] for each in ("startup", "liveness", "readiness")} == {
        "HTTPS"
    }
    assert CliRunner().invoke(app, ["run", *container["args"], "--help"]).exit_code == 0


def test_each_job_calls_a_command_of_ours() -> None:
    """With the settings of the replicas, which it finds where they are mounted."""
    for name in ("audit", "compact"):
        pod = NAMED["CronJob", f"ledger-{name}"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        command, *arguments = container["command"]
        assert (command, arguments[0]) == ("snapreplay", name)
        assert CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


def test_prometheus_finds_the_replicas_and_has_our_rules() -> None:
    """Each replica once, by the service that gives it its name."""
    monitor = NAMED["ServiceMonitor", "ledger"]["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    services = [each for each in RENDERED if each["kind"] == "Service"]
    (found,) = [each["metadata"]["name"] for each in services if wanted <= each["metadata"]["labels"].items()]
    assert found == NAMED["StatefulSet", "ledger"]["spec"]["serviceName"]
    rules = yaml.safe_load((ROOT / "deploy/observability/alerts.yaml").read_text(encoding="utf-8"))
    assert NAMED["PrometheusRule", "ledger"]["spec"] == rules


@with_helm
def test_helm_renders_it_so() -> None:
    """With everything; and without what is off unless it is asked for."""
    assert chart.whole() == chart.RENDERED.read_text(encoding="utf-8")
    values = {"image.repository": "ledger", "http.insecure": "true", "networkPolicy.monitoringNamespace": ""}
    least = [each for each in yaml.safe_load_all(chart.render(values).stdout) if each]
    kinds = sorted(each["kind"] for each in least)
    assert kinds == ["ConfigMap", "Pod", "PodDisruptionBudget", "Service", "Service", "StatefulSet"]
    (replica,) = [each for each in least if each["kind"] == "StatefulSet"]
    kubernetes_validate.validate(replica, "1.37", strict=True)
    names = {each["name"] for each in replica["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert "SNAPREPLAY_HTTP__INSECURE" in names
    assert "SNAPREPLAY_HTTP__TOKEN_FILE" not in names


@with_helm
def test_probes_and_metrics_have_a_port_of_their_own_if_it_is_wanted() -> None:
    """Kubernetes and Prometheus ask there, by http and without a token. The API keeps both at its own port."""
    found = list(yaml.safe_load_all(chart.render({**chart.EVERYTHING, "http.probesPort": "8081"}).stdout))
    for each in found:
        if "monitoring" not in each["apiVersion"]:
            kubernetes_validate.validate(each, "1.37", strict=True)
    by_kind = {each["kind"]: each for each in found}
    (container,) = by_kind["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["SNAPREPLAY_HTTP__PROBES_PORT"] == "8081"
    assert {"name": "probes", "containerPort": 8081} in container["ports"]
    asked = [container[f"{each}Probe"]["httpGet"] for each in ("startup", "liveness", "readiness")]
    assert {(each["port"], each["scheme"]) for each in asked} == {("probes", "HTTP")}
    assert by_kind["ServiceMonitor"]["spec"]["endpoints"] == [{"port": "probes", "path": "/metrics"}]
    named = {each["metadata"]["name"]: each["spec"]["ports"] for each in found if each["kind"] == "Service"}
    assert [each["name"] for each in named["ledger"]] == ["http", "probes"]
    assert [each["name"] for each in named["ledger-http"]] == ["http"]
    assert {"port": "probes"} in by_kind["NetworkPolicy"]["spec"]["ingress"][0]["ports"]


@with_helm
@pytest.mark.parametrize(
    "missing", ["image.repository", "http.tokensSecret", "jobs.image.repository", "monitoring.tokenSecret.name"]
)
def test_what_is_needed_is_named(missing) -> None:
    """Nothing is rendered without it."""
    done = chart.render({name: value for name, value in chart.EVERYTHING.items() if name != missing})
    assert done.returncode
    assert f"{missing} is required" in done.stderr


@with_helm
def test_settings_of_the_user_are_the_file(tmp_path: Path) -> None:
    """As they were given; other settings are another checksum, so the replicas are replaced."""
    given = "[kafka]\nbootstrap.servers = ['b:1']\n\n[http]\nsuspect_after_ms = 5000\n"
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"settings": given}))
    found = yaml.safe_load_all(chart.render(chart.EVERYTHING, "--values", str(values)).stdout)
    by_kind = {each["kind"]: each for each in found}
    assert tomllib.loads(by_kind["ConfigMap"]["data"]["snapreplay.toml"]) == tomllib.loads(given)
    checksums = [
        each["spec"]["template"]["metadata"]["annotations"]
        for each in (by_kind["StatefulSet"], NAMED["StatefulSet", "ledger"])
    ]
    assert checksums[0] != checksums[1]
