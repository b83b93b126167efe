"""Lines that only read are typed into a shell as they stand on the pages: curl, jq and our command. What a console
shows below them is what they print, but for numbers, times and names of files."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snapreplay import App, MapState, Settings, Topic
from snapreplay.api.cli.restore_view import print_status
from snapreplay.api.fleet_views import Covered, Scope, fleet
from snapreplay.api.peers import Known
from snapreplay.api.views import restore_status
from snapreplay.app.ways import app_name
from snapreplay.errors import RecordError
from snapreplay.service.control.protocol import Check, StatusDocument
from snapreplay.service.control.state_reads import PartRead, ReadAt, Role, StateAnswer
from snapreplay.service.control.status import StandbyStatus
from snapreplay.service.core import owners
from snapreplay.service.core.assignment import Copies
from snapreplay.service.core.batch_failures import handler_failed
from snapreplay.service.core.liveness import PeerState
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.phase import Phase
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.decisions import first_start
from snapreplay.service.kafka.membership import Membership
from snapreplay.service.runtime.report import problem_of
from snapreplay.testing import Harness
from tests.docs.outputs import differ, shown
from tests.docs.snippets import blocks, typed, words_of
from tests.support.deadlines import within
from tests.support.fake_control import FACTS, LIVE, NOW, USED, FakeControl
from tests.support.served import served

pytestmark = pytest.mark.whole

CURL = "curl() { command curl --fail-with-body --noproxy '*' \"$@\"; }; set -o pipefail; "
"""An answer that is no success ends the line with an error."""
READING = ("restore-status",)
ADDRESS = re.compile(r"http://(127\.0\.0\.1|10\.0\.3\.17):808\d|\bURL\b")


def reads(line: str) -> bool:
    """Say whether this line only reads, and ends: of `curl` what sends nothing, of ours a look at a process."""
    for words in words_of(line):
        is_looking = words[0] == "curl" and not {"-X", "-N"} & set(words) and ("-d" not in words or "-sG" in words)
        if not (is_looking or words[0] == "jq" or (words[0] == "snapreplay" and words[1] in READING)):
            return False
    return True


LINES = [(block.place, line) for block in blocks("sh", "console") for line in typed(block) if reads(line)]


async def printed(line: str, url: str, folder: Path) -> tuple[int, str]:
    """Type it; return its exit code and all that it says."""
    here = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    here |= {"SNAPREPLAY_HTTP__PORT": url.rpartition(":")[2]}
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-c", CURL + ADDRESS.sub(url, line)),
        cwd=folder,
        env=here,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with within(60):
        said, _ = await shell.communicate()
    return shell.returncode or 0, said.decode()


async def done(line: str, url: str, folder: Path) -> str:
    """Type it; return what is wrong."""
    code, said = await printed(line, url, folder)
    return f"{code}: {said[-500:]}" if code else ""


async def test_what_reads_succeeds_as_it_stands(tmp_path: Path) -> None:
    """All partitions of the process are live, the key is there, and so is the token of the page."""
    assert all(map(shutil.which, ("bash", "curl", "jq"))), "these lines need curl and jq: apt-get install curl jq"
    (tmp_path / "token").write_text("of-the-night-shift\n")
    control = FakeControl([LIVE])
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=1)
    at = ReadAt(0, 60, {"payments": 500}, 130, Role.OWNER, 0.0, "", "p1", "host-a")
    control.reading = lambda _: StateAnswer((PartRead(at, (("ada", b"\x05"),)),), (), 1)
    async with served(control) as url:
        for broken in (
            "curl -s http://127.0.0.1:8080/api/v2",
            "curl -s http://127.0.0.1:8080/readyz | jq '.checks[] | .a.b[]'",
        ):
            assert await done(broken, url, tmp_path), broken
        wrong = [f"{place}: {line}\n  {why}" for place, line in LINES if (why := await done(line, url, tmp_path))]
    assert not wrong, "\n".join(wrong)


def test_the_lines_are_those_that_one_types() -> None:
    """Neither a command that changes something nor one that never ends is among them."""
    lines = [line for _, line in LINES]
    assert len(lines) > 20
    assert not [line for line in lines if re.search(r" -X|events|trigger|--wait|\brun\b", line)]
    assert reads("curl -sG http://127.0.0.1:8080/api -d a=1 | jq .")
    assert not reads("curl -d '{}' http://127.0.0.1:8080/api")
    assert not reads("curl -s http://127.0.0.1:8080/ | sh")


payments = Topic("payments")
ledger: App[Any] = App("ledger", inputs=[payments], state=lambda: MapState(str, int))


@ledger.handler(payments)
def on_payment(record: Any, state: Any, out: Any) -> None:
    state[record.key] = record.value["amount"]


def one_failed() -> FakeControl:
    """A partition lives since its first start, another one has met a record without an amount."""
    assert LIVE.restore is not None
    restore = msgspec.structs.replace(LIVE.restore, snapshot=None, fallback_from=None, fallback_reason=None)
    with pytest.raises(RecordError) as failure:
        Harness(ledger).feed(payments, key="ada", value={})
    error = problem_of(handler_failed(failure.value, 1, ledger, can_roll_back=True))
    error = msgspec.structs.replace(error, hint=error.hint.replace(app_name(ledger), "ledger:app"))
    live = msgspec.structs.replace(LIVE, restore=restore)
    return FakeControl([live, msgspec.structs.replace(live, partition=1, phase=Phase.FAILED, error=error)])


def not_begun() -> FakeControl:
    """A process that waits for the genesis of its app."""
    control = FakeControl([])
    waits = str(first_start._not_begun(ledger, first_start._how_far([]))).replace(app_name(ledger), "ledger:app")
    control.service_facts = msgspec.structs.replace(control.service_facts, waiting_for=waits)
    return control


class SteppedDown(FakeControl):
    """A process that another one of its instance id has made step down."""

    def document(self) -> StatusDocument:
        error = DuplicateInstance("", other_pid=1, other_host="ledger-0", instance_id="ledger-0")
        nobody: Any = None
        membership = Membership(Settings(), "ledger", "", nobody, nobody)
        membership.stepped_down, membership._aside_for = owners.SteppedDown(14.0), error.other
        document = super().document()
        check = Check("instance id", ok=False, detail=membership.aside or "")
        return msgspec.structs.replace(document, ready_checks=(*document.ready_checks, check))


CONSOLES: dict[str, Callable[[], FakeControl]] = {
    "snapreplay restore-status": one_failed,
    "curl -s http://127.0.0.1:8080/restore-status | jq -r .waiting_for": not_begun,
    """curl -s http://127.0.0.1:8080/readyz | jq -r '.checks[] | select(.name == "instance id").detail'""": SteppedDown,
}
OF_AN_APP = "snapreplay restore-status --url http://10.0.3.17:8080"


@pytest.mark.parametrize("line", CONSOLES)
async def test_a_console_shows_what_the_line_prints(line: str, tmp_path: Path) -> None:
    """In the situation that the page is about."""
    async with served(CONSOLES[line]()) as url:
        _, said = await printed(line, url, tmp_path)
    assert not differ(shown(line), said), differ(shown(line), said)


def test_a_console_shows_what_is_printed_of_an_app_with_a_dead_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes with a partition each; the first has a copy of the other's."""
    facts = msgspec.structs.replace(FACTS, instance_id="ledger-0", partition_count=2)
    used = msgspec.structs.replace(USED, snapshot_id="5c1dd0a4")
    assert LIVE.restore is not None
    restore = msgspec.structs.replace(LIVE.restore, snapshot=used, fallback_reason=None)
    live = msgspec.structs.replace(LIVE, restore=restore)
    copy = StandbyStatus(1, "warm", 4120, digests_compared=109)
    other = Peer("p2", "ledger-1", "ledger-1", "http://10.0.3.18:8080", (1,))
    own = StatusDocument(facts, (live,), (copy,), peers=(other,), copies=Copies(1, 1))
    theirs = StatusDocument(facts, (msgspec.structs.replace(live, partition=1),))
    why = "its stream ended, and 10.0.3.18 port 8080 refuses connections"
    known = [Known(other, PeerState.DEAD, NOW, why, theirs)]
    covered = Covered(fleet(own, known, 0.0), Scope.APP)
    print_status(msgspec.json.decode(msgspec.json.encode(restore_status(covered))))
    said = capsys.readouterr().out
    assert not differ(shown(OF_AN_APP), said), differ(shown(OF_AN_APP), said)


def test_each_console_that_only_reads_is_compared() -> None:
    """A new one needs its situation; and a page that shows something else is found."""
    assert {line for block in blocks("console") for line in typed(block) if reads(line)} == {*CONSOLES, OF_AN_APP}
    assert not differ("# live # s …", "1 live 0.31 s or so")
    assert differ("# live equal", "1 live 0.31 s equal")
    assert differ("phase percent", "percent  phase")
