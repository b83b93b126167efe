"""The dead letters of a running app: the newest for people to read, and their way back to the inputs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.failure import PREFIX
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.record import InputRecord
from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.dead_letter_list import LETTERS_MAX, VALUE_CHARACTERS_MAX, DeadLetter, DeadLetterList
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.control.state_reads import NotReadable
from snapreplay.service.ports import Cluster, TopicPartition
from snapreplay.service.redrive import noted_in, parted, redrive
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.topics.reading import newest, reading

log = logging.getLogger("snapreplay")


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
        except SnapreplayError as error:
            raise NotReadable(number, "unknown", f"its dead letters cannot be read: {error.message}") from error
        found.sort(key=lambda each: each.written_at, reverse=True)
        return DeadLetterList(name, tuple(found[:LETTERS_MAX]))

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
        why = "the process ended first; redrive again: no record is sent twice"
        try:
            done = await redrive(self._app, self._settings)
        except SnapreplayError as error:
            why = str(error)
        except Exception as error:  # else the operation would never end
            log.exception("the dead letters could not be sent back")
            why = repr(error)
        else:
            sent: Counter[int] = Counter()
            for place, count in done.sent.items():
                sent[place.partition] += count
            left = f"; not sent back: {'; '.join(done.left)}" if done.left else ""
            for number, each in enumerate(dones):
                each(OperationState.SUCCEEDED, None, f"{counted(sent[number], 'record')} sent back{left}")
                left = ""
        finally:
            for each in dones:  # those that have not ended
                each(OperationState.FAILED, None, why)


def _letters(records: Sequence[InputRecord]) -> list[DeadLetter]:
    """Show the records of a partition of the topic. Those below the last note were sent back."""
    notes = [noted_in(each) for each in records]
    sent_until = max((each for each in notes if each is not None), default=0)
    return [_shown(each, sent_until) for each, note in zip(records, notes, strict=True) if note is None]


def _shown(letter: InputRecord, sent_until: int) -> DeadLetter:
    headers, reasons = parted(letter.headers)
    why = {name.removeprefix(PREFIX): _text(data) or "" for name, data in reasons}
    return DeadLetter(
        partition=letter.partition,
        offset=letter.offset,
        written_at=time_of(letter.timestamp),
        exception=why.get("exception", ""),
        message=why.get("message", ""),
        app_version=why.get("app_version", ""),
        redriven=letter.offset < sent_until,
        topic=why.get("topic", ""),
        input_partition=_number(why.get("partition")),
        input_offset=_number(why.get("offset")),
        timer=why.get("timer", ""),
        key=_text(letter.key),
        value=_text(letter.value),
        headers={name: _text(data) or "" for name, data in headers},
        dropped=why.get("dropped", ""),
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")[:VALUE_CHARACTERS_MAX]


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
