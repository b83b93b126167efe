"""deploy/compose.yaml: what can be known of it without Docker."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from examples import flights
from snapreplay.api.cli.root import app
from snapreplay.service.config.settings import load_settings
from tests.deploy.dockerfile import ROOT, command, stages

COMPOSE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name for name, service in SERVICES.items() if service["image"] == "snapreplay"}


def test_every_setting_exists() -> None:
    """The environment of each of our containers is accepted, as at start: no misspelt name."""
    for name in OURS:
        settings = load_settings(environment=SERVICES[name]["environment"])
        assert settings.bootstrap_servers == ["kafka:9092"]


def test_without_a_login_only_this_machine_reaches_it() -> None:
    """The image listens on all addresses, which demands one."""
    service = SERVICES["service"]
    assert load_settings(environment=service["environment"]).http.insecure
    assert [each.rpartition(":")[0] for each in service["ports"]] == ["127.0.0.1:8080"]


def test_every_command_exists() -> None:
    """Each one-shot calls a command of ours, and the service uses the image's own."""
    final = stages((ROOT / "Dockerfile").read_text(encoding="utf-8"))[-1]
    called = [SERVICES[name].get("entrypoint", command(final, "ENTRYPOINT")) for name in OURS]
    assert len(called) == len(OURS) > 2
    for words in called:
        text = " ".join(words[2:] if words[0] == "/bin/sh" else words)
        before_app = text.removeprefix("snapreplay ").split(" app.py")[0].split()
        assert CliRunner().invoke(app, [*before_app, "--help"]).exit_code == 0, text


def test_the_mounted_app_is_the_default_command() -> None:
    """The file that is mounted exists, is where the image looks for it, and is an app."""
    final = stages((ROOT / "Dockerfile").read_text(encoding="utf-8"))[-1]
    for name in OURS:
        (mount,) = SERVICES[name]["volumes"]
        source, target, mode = mount.split(":")
        assert f"/app/{command(final, 'CMD')[0]}" == target
        assert mode == "ro"
        assert (ROOT / "deploy" / source).resolve() == Path(flights.__file__)


def test_the_topics_are_those_of_the_app() -> None:
    """The one-shot creates the inputs and outputs of the mounted app, all with one partition count."""
    (script,) = SERVICES["topics"]["command"]
    created = script.split("for topic in ")[1].split(";")[0].split()
    assert created == [topic.name for topic in (*flights.app.inputs, *flights.app.outputs)]
    assert script.count("--partitions") == 1


def test_steps_wait_for_each_other() -> None:
    """Broker, topics, own topics, genesis, service: each begins when the one before it has succeeded."""
    order = ["kafka", "topics", "own-topics", "init", "service"]
    for before, name in pairwise(order):
        (wanted,) = SERVICES[name]["depends_on"].items()
        healthy = "service_healthy" if before == "kafka" else "service_completed_successfully"
        assert wanted == (before, {"condition": healthy})


def test_a_stop_is_given_its_time() -> None:
    """Docker's SIGKILL comes after our own deadline for a graceful stop."""
    grace_ms = 1000 * int(SERVICES["service"]["stop_grace_period"].removesuffix("s"))
    assert grace_ms > load_settings(environment={}).timeouts.shutdown_ms


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_nothing_listens_to_the_world(name: str) -> None:
    """There is no authentication: every published port is bound to the loopback address."""
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:")
