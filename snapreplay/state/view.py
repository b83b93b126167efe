"""The view that a program has of a partition's state beside its handlers: typed, read-only, the last committed
batch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from snapreplay.errors import UsageError
from snapreplay.state.keys import K
from snapreplay.state.map import MapState

S = TypeVar("S")
V = TypeVar("V")

Look = Callable[[], Any]
"""Gives the state as of the last committed batch at the moment of the call, or raises why there is none: a mapping, or
an object with a mapping for each map of the state."""


class Position(NamedTuple):
    """The place of a state in the history of its partition.

    Attributes:
        batch: the last committed batch in the state.
        offsets: input topic → next offset: all records before it are in the state.
        is_copy: whether this is a warm copy, whose owner may be ahead.
        age_seconds: time since the copy was last known to be up to date with the log, or the owner to be the owner.
    """

    batch: int
    offsets: Mapping[str, int]
    is_copy: bool
    age_seconds: float


At = Callable[[], Position]
"""Gives the position at the moment of the call. Raises as `Look`."""


def _no_position() -> Position:
    raise UsageError("this view has no position: it is of no running service")


def view_of(partition: int, look: Look, at: At = _no_position) -> View[Any]:
    """Make the kind of view that this state has. Raises what `look` raises."""
    kind: type[View[Any]] = MapView if isinstance(look(), Mapping) else StoresView
    return kind(partition, look, at)


class View(Generic[S]):
    """The state of one partition, as of the last committed batch. You may keep it: each access reads the last
    committed batch.

    Attributes:
        partition: number of the partition.
    """

    def __init__(self, partition: int, look: Look, at: At = _no_position) -> None:
        self.partition = partition
        self._look = look
        self._at = at

    @property
    def position(self) -> Position:
        """The current position of the state. Without an `await` in between, the next reads are of the same batch."""
        return self._at()


class MapView(View[MapState[K, V]], Mapping[K, V]):
    """A read-only view of a `MapState`. Each access decodes the value again, so changes to it have no effect.
    Iteration is in key order if the map is ordered, otherwise in no particular order.

    Every method raises PartitionNotLive while the partition is not LIVE in this process, and ServiceClosed after the
    service has stopped.
    """

    def __getitem__(self, key: K) -> V:
        value: V = self._look()[key]
        return value

    def __contains__(self, key: object) -> bool:
        found: bool = key in self._look()
        return found

    def __len__(self) -> int:
        return len(self._look())

    def __iter__(self) -> Iterator[K]:
        return iter(self._look())

    def range(
        self, *, prefix: Any = None, start: Any = None, end: Any = None, reverse: bool = False
    ) -> Iterator[tuple[K, V]]:
        """Yield entries of a map with `ordered=True` in key order; arguments and cost as for `MapState.range`.

        Without an `await` in between, all entries are of the same batch.

        Raises:
            RecordError: a bound has another type than the keys, or cannot be encoded.
            UsageError: the map is not ordered.
        """
        found: Iterator[tuple[K, V]] = self._look().range(prefix=prefix, start=start, end=end, reverse=reverse)
        return found

    def __repr__(self) -> str:
        return f"<MapView of partition {self.partition}>"


class StoresView(View[S]):
    """A read-only view of several maps: `view.items` is the `MapView` of the map `items`. `view.of(lambda s:
    s.items)` is the same, typed; it also works for a map named `of`, `partition` or `position`."""

    def __getattr__(self, name: str) -> MapView[Any, Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._map(name)

    def of(self, pick: Callable[[S], MapState[K, V]]) -> MapView[K, V]:
        """Return the typed view of the map that `pick` returns, as in `view.of(lambda state: state.items)`."""
        names: Any = _Names()
        return self._map(str(pick(names)))

    def _map(self, name: str) -> MapView[Any, Any]:
        getattr(self._look(), name)  # or it has none of this name
        return MapView(self.partition, lambda: getattr(self._look(), name), self._at)


class _Names:
    """Stands for a state: each attribute is its own name."""

    def __getattr__(self, name: str) -> str:
        return name
