"""The dead letters of a running app: the newest for people to read, and their way back to the inputs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.failure import PREFIX, Headers
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.record import InputRecord
from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.kafka_reads import LETTERS_MAX, VALUE_CHARACTERS_MAX, DeadLetter, DeadLetterList
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.control.state_reads import NotReadable
from snapreplay.service.ports import Cluster, TopicPartition
from snapreplay.service.redrive import TIMER, noted_in, parted, passed_over_in, redrive
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.topics.reading import newest, reading

log = logging.getLogger("snapreplay")

LEFT_SHOWN_MAX = 3
LEFT_CHARACTERS_MAX = 300


class DeadLetters:
    """The dead letters of an app. For the service's loop, until `close`."""

    def __init__(self, app: App[Any], settings: Settings, cluster: Cluster) -> None:
        self._app, self._settings, self._cluster = app, settings, cluster
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self) -> DeadLetterList:
        """Return the newest of all partitions, at most LETTERS_MAX.

        Raises:
            NotReadable: the cluster does not answer, or does not allow it.
        """
        name, number = dead_letters_topic(self._app.app_id), 0
        try:
            facts = (await self._cluster.topics([name])).get(name)
            if facts is None:
                return DeadLetterList(None)
            found: list[DeadLetter] = []
            async with reading(self._cluster, large=True) as reader:
                for number in range(facts.partition_count):
                    found += _letters(await newest(reader, TopicPartition(name, number), LETTERS_MAX))
                    found.sort(key=lambda each: each.written_at, reverse=True)
                    del found[LETTERS_MAX:]
        except SnapreplayError as error:
            raise NotReadable(number, "unknown", f"its dead letters cannot be read: {error.message}") from error
        return DeadLetterList(name, tuple(found))

    def begin(self, dones: Sequence[OnDone]) -> None:
        """Send all of them back to their inputs; each of `dones` hears of its input partition."""
        task = asyncio.get_running_loop().create_task(self._redrive(dones))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up a redrive that is under way. The next one continues it: no record is sent twice."""
        for task in tuple(self._tasks):
            await cancel_and_wait(task)

    async def _redrive(self, dones: Sequence[OnDone]) -> None:
        why = "the process ended before it had finished; redrive again: no record is sent twice"
        try:
            done = await redrive(self._app, self._settings)
        except SnapreplayError as error:
            why = str(error)
        except Exception as error:  # any error must end the operation, with its text
            log.exception("the dead letters could not be sent back")
            why = repr(error)
        else:
            sent: Counter[int] = Counter()
            for place, count in done.sent.items():
                sent[place.partition] += count
            left = _left(done.left)
            for number, each in enumerate(dones):
                each(OperationState.SUCCEEDED, None, f"{counted(sent[number], 'record')} sent back{left}")
                left = ""
        finally:
            for each in dones:  # those that have not ended
                each(OperationState.FAILED, None, why)


def _left(left: Sequence[str]) -> str:
    """Say how many were passed over, and of the first few why: each answer about operations has this."""
    if not left:
        return ""
    more = f"; and {len(left) - LEFT_SHOWN_MAX:,} more" if len(left) > LEFT_SHOWN_MAX else ""
    return f"; {len(left):,} skipped: {'; '.join(each[:LEFT_CHARACTERS_MAX] for each in left[:LEFT_SHOWN_MAX])}{more}"


def _letters(records: Sequence[InputRecord]) -> list[DeadLetter]:
    """Show the records of a partition of the topic. Those below the last note were sent back or passed over."""
    sent_until, left, found = 0, dict[int, str](), list[InputRecord]()
    for each in records:
        if (noted := noted_in(each)) is None:
            found.append(each)
        else:
            sent_until = max(sent_until, noted)
            left |= passed_over_in(each)
    return [_shown(each, sent_until, left.get(each.offset, "")) for each in found]


def _shown(letter: InputRecord, sent_until: int, left: str) -> DeadLetter:
    headers, reasons = parted(letter.headers)
    why = {name.removeprefix(PREFIX): _text(data) or "" for name, data in reasons}
    is_done = letter.offset < sent_until
    if is_done and "timer" in why:  # a note of an older version does not say it
        left = TIMER
    shown = _some(headers)
    return DeadLetter(
        partition=letter.partition,
        offset=letter.offset,
        written_at=time_of(letter.timestamp),
        exception=why.get("exception", ""),
        message=why.get("message", ""),
        app_version=why.get("app_version", ""),
        state="passed_over" if left else "sent_back" if is_done else "open",
        passed_over=left,
        topic=why.get("topic", ""),
        input_partition=_number(why.get("partition")),
        input_offset=_number(why.get("offset")),
        timer=why.get("timer", ""),
        key=_text(letter.key),
        value=_text(letter.value),
        value_is_cut=len(_decoded(letter.value)) > VALUE_CHARACTERS_MAX,
        headers=shown,
        headers_left_out=len({name for name, _ in headers} - shown.keys()),
        dropped=why.get("dropped", ""),
    )


def _some(headers: Headers) -> dict[str, str]:
    """Return as many of these headers as fit into VALUE_CHARACTERS_MAX together."""
    shown, left = dict[str, str](), VALUE_CHARACTERS_MAX
    for name, data in headers:
        text = _text(data) or ""
        left -= len(name) + len(text)
        if left < 0:
            break
        shown[name] = text
    return shown


def _text(data: bytes | None) -> str | None:
    return None if data is None else _decoded(data)[:VALUE_CHARACTERS_MAX]


def _decoded(data: bytes | None) -> str:
    """Decode no more than what is shown, and a bit: this runs in the runners' loop."""
    return (data or b"")[: 4 * (VALUE_CHARACTERS_MAX + 1)].decode(errors="backslashreplace")


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
