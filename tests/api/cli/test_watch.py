"""restore-status --watch."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable

import msgspec
import pytest
from rich.console import Console

from snapreplay.api.cli import restore_view
from snapreplay.api.cli.client import Client, Json, ServiceUnreachable
from snapreplay.api.cli.exits import ExitCode
from snapreplay.api.cli.output import Format
from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.core.phase import Phase
from tests.support.fake_control import FAILED, LIVE, LOADING, FakeControl

ADVANCED = msgspec.structs.replace(LOADING, phase=Phase.LIVE, restore=LIVE.restore)


@pytest.fixture
def scripted(control: FakeControl, monkeypatch: pytest.MonkeyPatch):
    """The service shows these statuses, the next one at each look, and stays at the last."""
    monkeypatch.setattr(restore_view, "POLL_S", 0.01)

    def script(*looks: list[PartitionStatus]) -> None:
        left = list(looks)
        look = Client.restore_status

        def turn_the_page(client: Client) -> Json:
            status = look(client)
            if len(left) > 1:
                del left[0]
            return status

        # Others look too: the HTTP process does so once a second.
        monkeypatch.setattr(control, "partitions", lambda: left[0])
        monkeypatch.setattr(Client, "restore_status", turn_the_page)

    return script


def test_lines_until_all_are_live(url, scripted, capsys):
    """In a pipe: a line per change, none per look, and 0 when all are live."""
    scripted([LIVE, LOADING], [LIVE, LOADING], [LIVE, ADVANCED])
    with Client(url) as client:
        assert restore_view.follow(client, Format.TABLE) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [
        "partition 0 live",
        "partition 1 loading 1,024 / 4,096 bytes 12 % 512/s attempt 2",
        "partition 1 live",
    ]


def test_failed_partition_ends_it_when_the_rest_is_live(url, scripted, capsys):
    """Nothing will change any more without an operator: exit code 1, and the hint says once what to do."""
    scripted([LOADING, FAILED], [ADVANCED, FAILED])
    with Client(url) as client:
        assert restore_view.follow(client, Format.TABLE) == ExitCode.FINDINGS
    assert capsys.readouterr().out.splitlines()[1:] == [
        "partition 2 failed RecordError: handler failed",
        "partition 2: hint: deploy a fixed handler",
        "partition 1 live",
    ]


def test_json_is_a_document_per_change(url, scripted, capsys):
    """--output json: one document per line, repeated looks left out."""
    scripted([], [], [LOADING], [LOADING], [ADVANCED])
    with Client(url) as client:
        assert restore_view.follow(client, Format.JSON) == ExitCode.OK
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(each["partitions"]) for each in documents] == [0, 1, 1]


def test_terminal_gets_bars(url, scripted, monkeypatch):
    """In a terminal: a bar per partition, and what is wrong above them, once."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(restore_view, "console", lambda: terminal)
    scripted([LIVE, LOADING], [LIVE, LOADING], [LIVE, ADVANCED])
    with Client(url) as client:
        assert restore_view.follow(client, Format.TABLE) == ExitCode.OK
    assert "partition 1" in screen.getvalue()
    assert "━" in screen.getvalue()
    assert screen.getvalue().count("snapshot 88bb was not usable") == 2  # partition 0, then 1


def test_silence_is_endured_for_a_while(scripted, monkeypatch):
    """A service that is killed and started again is followed on; a dead one ends it with 3."""
    monkeypatch.setattr(restore_view, "PATIENCE_S", 0.3)
    looks: list[Callable[[], Json]] = []
    gone = threading.Event()

    class Flaky(Client):
        def restore_status(self):
            if looks:
                return looks.pop(0)()
            gone.set()
            raise ServiceUnreachable("gone")

    status: Json = {"summary": {"all_live": False, "partitions_by_phase": {}}, "partitions": []}

    def silent():
        raise ServiceUnreachable("restarting")

    looks += [lambda: status, silent, silent, lambda: status]
    with Flaky("http://127.0.0.1:1") as client, pytest.raises(ServiceUnreachable, match="gone"):
        restore_view.follow(client, Format.TABLE)
    assert gone.is_set()
