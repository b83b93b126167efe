"""Tests that a command in a hint leads to the cluster and the service that it was printed for."""

import pytest
import typer

from snapreplay.api.cli.root import app as commands
from snapreplay.service.config.settings import Settings, load_settings
from snapreplay.service.config.typed import LOCAL, OF_CLUSTER, addressed

HINT = "run `snapreplay init a:app`; or `kafka-topics.sh --list`; then `snapreplay retry --partition 0`"


def loaded(tmp_path, monkeypatch, file="", environment=(), default="", **given):
    monkeypatch.chdir(tmp_path)
    if default:
        (tmp_path / "snapreplay.toml").write_text(default)
    if file:
        (tmp_path / "my.toml").write_text(file)
    named = tmp_path / "my.toml" if file else None
    return load_settings({name.replace("__", "."): value for name, value in given.items()}, named, dict(environment))


SERVERS = "kafka__bootstrap__servers"


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, ""),
        ({SERVERS: "k1:9092,k2:9092"}, " --bootstrap-servers k1:9092,k2:9092"),
        ({"environment": {"SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS": "k1:1"}}, " --bootstrap-servers k1:1"),
        ({"default": 'kafka.bootstrap.servers = "k1:1"'}, ""),
        ({"default": 'kafka.bootstrap.servers = "k1:1"', SERVERS: "k2:1"}, " --bootstrap-servers k2:1"),
        ({"file": 'kafka.bootstrap.servers = "k1:1"'}, " --config {}/my.toml"),
        ({"file": "http.port = 1", SERVERS: "k2:1"}, " --config {}/my.toml --bootstrap-servers k2:1"),
        (
            {SERVERS: "k1:1", "kafka__security__protocol": "SSL", "kafka__ssl__password": "hush"},
            " --bootstrap-servers k1:1 --set kafka.security.protocol=SSL --set kafka.ssl.password=SECRET",
        ),
        ({SERVERS: "k1:1", "kafka__request__timeout__ms": "9000"}, " --bootstrap-servers k1:1"),
    ],
)
def test_a_command_gets_what_its_process_was_told(tmp_path, monkeypatch, given, options):
    """By an option, a file that was named or the environment; not what it finds by itself, and never a secret."""
    settings = loaded(tmp_path, monkeypatch, **given)
    told = HINT.replace("a:app", "a:app" + options.format(tmp_path))
    assert addressed(HINT, settings) == told
    assert addressed(told, settings) == told


def test_settings_of_a_program_are_not_those_of_a_shell():
    """It has made them itself: nothing else says where its cluster is."""
    settings = Settings(kafka={"bootstrap.servers": "k1:1"})
    assert addressed(HINT, settings) == HINT.replace("a:app", "a:app --bootstrap-servers k1:1")
    assert addressed(HINT, Settings()) == HINT


def test_a_log_line_leads_to_the_service_that_wrote_it(tmp_path, monkeypatch):
    """By its port, if it does not find one."""
    at_port = loaded(tmp_path, monkeypatch, http__port=18_130)
    here = HINT.replace("--partition 0", "--partition 0 --http-port 18130")
    assert addressed(HINT, at_port, with_port=True) == here
    assert addressed(HINT, loaded(tmp_path, monkeypatch, http__port=0), with_port=True) == HINT


def test_every_command_is_known_by_what_it_connects_to():
    """As the command tree has them: a new command must be in one of the lists, or ask a running service."""
    tree = typer.main.get_command(commands)
    of_cluster, local = set[str](), set[str]()
    for name, command in tree.commands.items():  # type: ignore[attr-defined]  # a group
        for each in getattr(command, "commands", {"": command}).values():
            options = {option for taken in each.params for option in taken.opts}
            if "--bootstrap-servers" in options:
                of_cluster.add(name)
            elif "--url" not in options:
                local.add(name)
    assert set(OF_CLUSTER) == of_cluster
    assert set(LOCAL) == local
