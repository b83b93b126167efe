"""Doing what the hint of a FAILED partition says: the printed command, with its own options."""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable
from typing import Any

from snapreplay.app.names import witness_group
from snapreplay.service.core.witness import Witness
from snapreplay.service.decisions.accept import Acceptance, carry_out, propose
from snapreplay.service.ports import CommittedOffset
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.publish.state import Begun
from snapreplay.service.topics import log_bounds
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.reading import reading
from tests.support.stage import Stage

REASON = "seen and decided"


def command_in(hint: str, way: str = "") -> list[str]:
    """The words of the one `snapreplay accept` in a hint, or of the hint that leads this way."""
    (command,) = re.findall(rf"`(snapreplay accept [^`]+)` \({re.escape(way)}", hint)
    return shlex.split(command)


def finding_in(hint: str, way: str = "") -> str:
    words = command_in(hint, way)
    return words[words.index("--finding") + 1]


def settings_in(hint: str, way: str = "") -> dict[str, Any]:
    """The settings that the command carries, as `Stage.settings` takes them."""
    words = command_in(hint, way)
    given = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    known: dict[str, dict[str, Any]] = {
        "changelog.enabled=false": {"changelog": {"enabled": False}},
        "restore.mode=replay": {"restore": {"mode": "replay"}},
    }
    return {name: value for each in given for name, value in known[each].items()}


async def proposed(here: Stage, hint: str, app: Any = None, way: str = "") -> Acceptance:
    """Return what `accept --dry-run` finds."""
    settings = here.settings(**settings_in(hint, way))
    found = finding_in(hint, way)
    return await propose(app or here.app, settings, here.cluster, 0, found, REASON)


async def accepted(here: Stage, hint: str, app: Any = None, way: str = "") -> tuple[Acceptance, Begun]:
    acceptance = await proposed(here, hint, app, way)
    return acceptance, await carry_out(acceptance)


def overtaken(monkeypatch: Any, times: int, go_on: Callable[[], Awaitable[None]]) -> list[None]:
    """Let the owner continue `times` times after an examination has asked for the log's end; what is left of them."""
    left, real = [None] * times, log_bounds.read_starts

    async def read_starts(*given: Any, **named: Any) -> Any:
        if left:
            left.pop()
            await go_on()
        return await real(*given, **named)

    monkeypatch.setattr(log_bounds, "read_starts", read_starts)
    return left


async def continues_by_a_witness(bench: Any, one: Any) -> None:
    """Let the owner commit a batch of ten records, and its witness name that batch at once."""
    await one.feed(10)
    log = one.context.increments
    async with reading(one.context.cluster) as reader:
        last = await last_increment(reader, log, await reader.bounds(log))
    assert last is not None
    committed = CommittedOffset(last.offset + 1, Witness.of(log.topic, last.increment, last.offset).metadata)
    bench.broker.group_offsets[witness_group(bench.app.app_id), log] = committed


def killed_before_its_increment(monkeypatch: Any) -> None:
    """Kill the writer of a snapshot directly behind it."""
    real = snapshot_writer.write

    async def then_killed(*arguments: Any) -> None:
        await real(*arguments)
        raise asyncio.CancelledError

    monkeypatch.setattr(snapshot_writer, "write", then_killed)


def fenced_while_writing(monkeypatch: Any, times: int) -> list[int]:
    """Fence the writer of a snapshot, so many times. Returns how often it is still to happen."""
    left = [times]

    def then_fenced(real: Any) -> Any:
        async def written(context: Any, *arguments: Any) -> Any:
            pointer = await real(context, *arguments)
            if left[0]:
                left[0] -= 1
                await (await context.cluster.fence(context.transactional_id)).discard()
            return pointer

        return written

    monkeypatch.setattr(snapshot_writer, "write", then_fenced(snapshot_writer.write))
    return left
