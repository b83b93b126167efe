"""deploy/helm: what is rendered of it, and what it refuses to render."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from snapreplay.api.credentials import TlsFiles
from snapreplay.service.config.settings import load_settings
from tests.deploy import chart
from tests.deploy.dockerfile import ROOT

RENDERED: list[dict[str, Any]] = list(yaml.safe_load_all(chart.RENDERED.read_text(encoding="utf-8")))
NAMED = {(each["kind"], each["metadata"]["name"]): each for each in RENDERED}
OF_KUBERNETES = [each for each in RENDERED if "monitoring" not in each["apiVersion"]]  # test_custom_resources.py
REPLICA = NAMED["StatefulSet", "ledger"]["spec"]["template"]["spec"]

with_helm = pytest.mark.skipif(not chart.HELM, reason="needs helm: make helm")


def test_what_is_rendered_is_of_this_chart() -> None:
    """Who changes the chart renders it again: `python -m tests.deploy.chart`."""
    assert chart.RENDERED.read_text(encoding="utf-8").partition("\n")[0] == f"# {chart.digest()}"


@pytest.mark.parametrize("version", ["1.31", "1.37"])
@pytest.mark.parametrize("resource", OF_KUBERNETES, ids=lambda each: f"{each['kind']}/{each['metadata']['name']}")
def test_kubernetes_has_every_field(resource, version) -> None:
    """By the schemas of an older and of the newest version."""
    kubernetes_validate.validate(resource, version, strict=True)


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
        command, *arguments = container["args"]
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
    assert kinds == ["ConfigMap", "PodDisruptionBudget", "Service", "Service", "StatefulSet"]
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
def test_each_alert_links_to_the_runbook_where_it_is() -> None:
    """A path in a repository is no link for whoever is called."""
    address = "https://docs.example.com/runbook/"
    found = yaml.safe_load_all(chart.render({**chart.EVERYTHING, "monitoring.runbook": address}).stdout)
    (rules,) = [each["spec"] for each in found if each["kind"] == "PrometheusRule"]
    links = [rule["annotations"]["runbook_url"] for group in rules["groups"] for rule in group["rules"]]
    assert links
    assert {each.partition("#")[0] for each in links} == {address}


@with_helm
@pytest.mark.parametrize(
    "missing", ["image.repository", "http.tokensSecret", "jobs.image.repository", "monitoring.tokenSecret.name"]
)
def test_what_is_needed_is_named(missing) -> None:
    """Nothing is rendered without it."""
    done = chart.render({name: value for name, value in chart.EVERYTHING.items() if name != missing})
    assert done.returncode
    assert f"{missing} is needed" in done.stderr


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
