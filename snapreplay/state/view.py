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
        batch: the last committed one that is in it.
        offsets: input topic → all records before this offset are in it.
        is_copy: it is a warm copy, whose owner may be further.
        age_seconds: since a copy was known to be as new as the log, or the owner to be the owner.
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
    """The state of one partition, as of the last committed batch. It may be kept: each access looks again.

    Attributes:
        partition: whose state it is.
    """

    def __init__(self, partition: int, look: Look, at: At = _no_position) -> None:
        self.partition = partition
        self._look = look
        self._at = at

    @property
    def position(self) -> Position:
        """The position of the state now. Without an `await` in between, what is read next is of the same batch."""
        return self._at()


class MapView(View[MapState[K, V]], Mapping[K, V]):
    """A `MapState` as a read-only mapping. Every access decodes anew, so changes to a returned value have no effect.
    Iteration is in the order of the keys if the map is ordered, otherwise in none.

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
        """Yield the entries of a map with `ordered=True` in the order of their keys; arguments and cost as of
        `MapState.range`.

        Without an `await` between the entries, all of them are of the same batch.

        Raises:
            RecordError: a bound of another type than the keys, or that cannot be encoded.
            UsageError: the map is not ordered.
        """
        found: Iterator[tuple[K, V]] = self._look().range(prefix=prefix, start=start, end=end, reverse=reverse)
        return found

    def __repr__(self) -> str:
        return f"<MapView of partition {self.partition}>"


class StoresView(View[S]):
    """A state of several maps: `view.items` is the `MapView` of its map `items`. `view.of(lambda s: s.items)` is the
    same with the types of that map, also where the map is named `of`, `partition` or `position`."""

    def __getattr__(self, name: str) -> MapView[Any, Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._map(name)

    def of(self, pick: Callable[[S], MapState[K, V]]) -> MapView[K, V]:
        """Return the map that `pick` returns of the state, typed: `view.of(lambda state: state.items)`."""
        names: Any = _Names()
        return self._map(str(pick(names)))

    def _map(self, name: str) -> MapView[Any, Any]:
        getattr(self._look(), name)  # or it has none of this name
        return MapView(self.partition, lambda: getattr(self._look(), name), self._at)


class _Names:
    """Stands for a state: each attribute is its own name."""

    def __getattr__(self, name: str) -> str:
        return name
