"""Lines that only read are typed into a shell as they stand on the pages: curl, jq and our command."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from snapreplay.service.control.state_reads import AnsweredBy, PartRead, ReadAt, StateAnswer
from tests.docs.snippets import blocks, typed, words_of
from tests.support.deadlines import within
from tests.support.fake_control import LIVE, FakeControl
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
    at = ReadAt(0, 60, {"payments": 500}, 130, AnsweredBy.OWNER, 0.0, "", "p1", "host-a")
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
