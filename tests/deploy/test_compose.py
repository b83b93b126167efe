"""deploy/compose.yaml: what can be known of it without a daemon. `make docker` brings it up."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from snapreplay.service.config.settings import load_settings
from tests.deploy.dockerfile import ROOT, command, stages
from tests.deploy.prometheus import promtool

FILE = ROOT / "deploy/compose.yaml"
DOCKER_COMPOSE = ROOT / ".jars/docker/docker-compose"
COMPOSE = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name for name, service in SERVICES.items() if service["image"] == "snapreplay"}


@pytest.mark.skipif(not DOCKER_COMPOSE.exists(), reason="Docker Compose is missing: `make docker` builds it")
def test_docker_compose_reads_it() -> None:
    """It checks it against its schema, and that what a service names is there."""
    profiles = [word for each in SERVICES.values() for word in ("--profile", *each["profiles"])]
    command = [DOCKER_COMPOSE, *profiles, "-f", FILE, "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["services"]) == set(SERVICES)


def test_prometheus_asks_the_service_and_has_the_rules(tmp_path: Path) -> None:
    """Its configuration is valid, and names the service's port and the file that is mounted."""
    text = COMPOSE["configs"]["prometheus"]["content"]
    (tmp_path / "prometheus.yml").write_text(text)
    config = yaml.safe_load(text)
    assert config["scrape_configs"][0]["static_configs"] == [{"targets": ["service:8080", "service-2:8080"]}]
    (mount,) = SERVICES["prometheus"]["volumes"]
    assert [f"./observability/alerts.yaml:{path}:ro" for path in config["rule_files"]] == [mount]
    promtool("check", "config", "--syntax-only", tmp_path / "prometheus.yml")


def test_every_setting_exists() -> None:
    """The environment of each of our containers is accepted, as at start: no misspelt name."""
    for name in OURS | {"audit"}:
        settings = load_settings(environment=SERVICES[name]["environment"])
        assert settings.bootstrap_servers == ["kafka:9092"]


def test_without_a_login_only_this_machine_reaches_it() -> None:
    """The image listens on all addresses, which demands one."""
    for name, address in (("service", "127.0.0.1:8080"), ("service-2", "127.0.0.1:8081")):
        assert load_settings(environment=SERVICES[name]["environment"]).http.insecure
        assert [each.rpartition(":")[0] for each in SERVICES[name]["ports"]] == [address]


def test_every_command_exists() -> None:
    """Each one-shot calls one of our commands, and the service uses the image's own."""
    final = stages((ROOT / "Dockerfile").read_text(encoding="utf-8"))[-1]
    called = [SERVICES[name].get("entrypoint", command(final, "ENTRYPOINT")) for name in OURS]
    called.append(SERVICES["audit"]["command"])
    assert len(called) == len(OURS) + 1 > 3
    for words in called:
        text = " ".join(words[2:] if words[0] == "/bin/sh" else words)
        before_app = text.removeprefix("snapreplay ").split(" app.py")[0].split()
        assert CliRunner().invoke(app, [*before_app, "--help"]).exit_code == 0, text


def test_a_stop_is_given_its_time() -> None:
    """Docker's SIGKILL comes after our own deadline for a graceful stop."""
    grace_ms = 1000 * int(SERVICES["service"]["stop_grace_period"].removesuffix("s"))
    assert grace_ms > load_settings(environment={}).timeouts.shutdown_ms


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_nothing_listens_to_the_world(name: str) -> None:
    """There is no authentication: every published port is bound to the loopback address."""
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:")
