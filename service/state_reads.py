"""Reads of the states that are here. For the runners' loop only, and without a pause: an answer is of one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from snapreplay.app.app import App
from snapreplay.errors import RecordError, UnknownPartition, UsageError
from snapreplay.service.control.kafka_reads import ReadKeyHistory
from snapreplay.service.control.state_reads import (
    BYTES_MAX,
    BatchUnderWay,
    NotRead,
    NotReadable,
    PartRead,
    Readable,
    ReadAt,
    ReadKey,
    ReadRange,
    StateAnswer,
    StateRead,
    UnknownMap,
    WrongRead,
)
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.partition.standby import Standbys
from snapreplay.service.runtime.context import ClusterView, Identity
from snapreplay.service.supervisor import Supervisor
from snapreplay.state.committed import CommittedView
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.keys import KeyCodec, WrongKey, bound_of, key_of, text_of
from snapreplay.state.sorted_entries import KeyBounds
from snapreplay.state.stores import maps_of


class StateReads:
    """Answers the reads of one service."""

    def __init__(self, app: App[Any], identity: Identity) -> None:
        self._app = app
        self._identity = identity
        self._codecs: dict[str, KeyCodec[Any]] | None = None

    def read(self, read: StateRead, supervisor: Supervisor, partition_count: int) -> StateAnswer:
        """Answer as of now. Raises UnknownMap, WrongRead, UnknownPartition, NotReadable: it cannot be answered."""
        codec = self._codec(read.store)
        if read.partition is not None and not 0 <= read.partition < partition_count:
            raise UnknownPartition(read.partition, partition_count)
        if isinstance(read, ReadRange):
            found = self._found(supervisor, read, read.partition)
            return StateAnswer((self._range(found, read, codec),), (), partition_count)
        key = _checked("path.key", key_of, read.key, codec)
        if read.partition is not None:
            found = self._found(supervisor, read, read.partition)
            return StateAnswer((self._value(found, read, key),), (), partition_count)
        parts, not_read = [], []
        copies = supervisor.standbys.held if read.is_stale_allowed else set()
        for number in sorted(supervisor.runners.keys() | copies):
            try:
                parts.append(self._value(self._found(supervisor, read, number), read, key))
            except BatchUnderWay:
                raise
            except NotReadable as error:
                not_read.append(NotRead(number, error.phase, error.reason))
        return StateAnswer(tuple(parts), tuple(not_read), partition_count)

    def encoded_key(self, read: ReadKeyHistory) -> bytes:
        """Return the key as the log has it. Raises UnknownMap, WrongRead: there is no such key."""
        codec = self._codec(read.store)
        return codec.encode(_checked("path.key", key_of, read.key, codec))

    def _codec(self, store: str) -> KeyCodec[Any]:
        """Return the codec of the keys of a store that the app declares, even if no partition is live here."""
        if self._codecs is None:
            maps = maps_of(self._app.state())
            self._codecs = {}
            for name, each in maps.items():
                key_type, _ = each.__snapreplay_types__()
                self._codecs[name or DEFAULT_STORE] = KeyCodec(key_type)
        if store not in self._codecs:
            raise UnknownMap(tuple(self._codecs))
        return self._codecs[store]

    def _found(self, supervisor: Supervisor, read: StateRead, number: int) -> tuple[int, Readable]:
        runners, standbys = supervisor.runners, supervisor.standbys
        found = find_readable(runners, standbys, number, is_stale_allowed=read.is_stale_allowed)
        return number, found

    def _value(self, found: tuple[int, Readable], read: ReadKey, key: Any) -> PartRead:
        stored = _entries_of(found[1], read.store).stored(key)
        return PartRead(self._at(*found), () if stored is None else ((key, stored),))

    def _range(self, found: tuple[int, Readable], read: ReadRange, codec: KeyCodec[Any]) -> PartRead:
        texts = {"prefix": read.prefix, "from": read.start, "to": read.end}
        bounds = KeyBounds(*(_checked(f"query.{name}", bound_of, text, codec) for name, text in texts.items()))
        after = _checked("query.after", key_of, read.after, codec)
        try:
            entries = _entries_of(found[1], read.store).stored_entries(bounds, after)
        except RecordError:
            raise WrongRead("query", f"no bounds of keys that are {codec.name}; an int has no prefix") from None
        except UsageError:
            raise WrongRead("query", "this store does not keep its keys in order, so it has no ranges") from None
        items: list[tuple[Any, bytes]] = []
        size_bytes, last = 0, None
        for key, stored in entries:
            if len(items) == read.limit or (items and size_bytes + len(stored) > BYTES_MAX):
                last = items[-1][0]
                break
            items.append((key, stored))
            size_bytes += len(stored)
        return PartRead(self._at(*found), tuple(items), None if last is None else text_of(last))

    def _at(self, number: int, found: Readable) -> ReadAt:
        return ReadAt(
            partition=number,
            batch=found.last.batch,
            positions=found.last.positions,
            owner_epoch=found.owner_epoch,
            answered_by=found.role,
            age_seconds=found.age_seconds,
            ownership_doubt=found.doubt,
            process_id=self._identity.process_id,
            host=self._identity.host,
        )


def running(supervisor: Supervisor | None, view: ClusterView | None, number: int) -> tuple[Supervisor, int]:
    """Return who runs the partitions, of which this is one, and how many there are.

    Raises:
        UnknownPartition: no process runs them yet, or there is no such one.
    """
    if view is None or supervisor is None or not 0 <= number < view.partition_count:
        raise UnknownPartition(number, view.partition_count if view is not None and supervisor else None)
    return supervisor, view.partition_count


def find_readable(
    runners: Mapping[int, PartitionRunner], standbys: Standbys | None, number: int, *, is_stale_allowed: bool
) -> Readable:
    """Return the state of a partition that is LIVE here, or else its warm copy.

    Raises:
        NotReadable: there is neither, or the copy is being loaded.
        BatchUnderWay: the copy has a part of a batch, for a moment.
    """
    runner = runners.get(number)
    if runner is not None and (found := runner.readable) is not None:
        return found
    if is_stale_allowed and standbys is not None and (copy := standbys.readable(number)) is not None:
        return copy
    if runner is not None:
        raise NotReadable(number, runner.phase.value, f"it is {runner.phase.value}")
    raise NotReadable(number, None, "another process owns it, or none does yet")


def _entries_of(found: Readable, store: str) -> CommittedView[Any, Any]:
    view = found.store.committed_view()
    entries: CommittedView[Any, Any] = view if isinstance(view, CommittedView) else getattr(view, store)
    return entries


def _checked(where: str, parse: Callable[[str, KeyCodec[Any]], Any], text: str | None, codec: KeyCodec[Any]) -> Any:
    if text is None:
        return None
    try:
        return parse(text, codec)
    except WrongKey as error:
        raise WrongRead(where, error.why) from None
