"""The compiled engine, `snapreplay_engine` (Rust, in `engine/`), if it is installed. Pure.

It does the work of a few functions that every record passes. Each asks `compiled` and has the same in Python beside it,
which is the reference: the engine returns None for anything unusual. SNAPREPLAY_ENGINE chooses, for the whole process:
`auto` (the engine, if it is there), `pure` (Python) or `compiled` (refuse to start without it).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, cast

from snapreplay.errors import UsageError

INTERFACE = 14
"""Of the functions below; `engine/src/lib.rs` has the same number."""
VARIABLE = "SNAPREPLAY_ENGINE"
_HINT = "`make setup` in a checkout builds it if cargo is there, `pip install ./engine` anywhere"


class Shard(Protocol):
    """A `dict[bytes, bytes]` in less memory. Its objects are made when they are read."""

    def __len__(self) -> int: ...

    def get(self, key: bytes, /) -> bytes | None: ...

    def __setitem__(self, key: bytes, value: bytes, /) -> None: ...

    def __delitem__(self, key: bytes, /) -> None: ...

    def pop(self, key: bytes, default: None, /) -> bytes | None: ...

    def update(self, entries: dict[bytes, bytes], /) -> None: ...

    def copy(self) -> dict[bytes, bytes]: ...

    def items(self, start: int = 0, most: int = ..., /) -> list[tuple[bytes, bytes]]:
        """Return at most `most` entries without the first `start`, in no order, the same one until the next write."""


class Outputs(Protocol):
    """A `Sequence` of `record.Output` in less memory. Its objects are made when they are read.

    Attributes:
        at_ms, input_key: as of `Out`.
        send: as `Out.send`.
    """

    at_ms: int
    input_key: bytes | None
    send: Callable[..., None]

    def __len__(self) -> int: ...

    def append(self, output: Any, at_ms: int, /) -> None: ...

    def learn(self, ways: list[tuple[Any, ...]], /) -> None: ...

    def cut(self, count: int, /) -> None:
        """Drop all but so many."""

    def hash(self, bytes_max: int, /) -> bool:
        """Hash the next ones. True when all are hashed."""

    def hashes(self) -> dict[str, int]: ...

    def counts(self) -> dict[str, int]: ...

    def take(self) -> Sequence[Any]:
        """Return all outputs, each that had no time with that of its record. None is left."""


class Places(Protocol):
    """A `list[Slot]` of the touched keys in less memory. Its tuples are made when they are read."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None, int]]: ...

    def __getitem__(self, part: slice, /) -> Places: ...

    def keys(self) -> list[bytes]:
        """Return the encoded keys."""

    def values(self) -> dict[bytes, bytes | None]:
        """Return the values by key."""

    def take(self) -> Places:
        """Move all places into another object. None is left."""

    def append(self, place: tuple[bytes, bytes | None, int], /) -> None: ...

    def extend(self, places: Iterable[tuple[bytes, bytes | None, int]], /) -> None: ...

    def clear(self) -> None: ...


class Compiled(Protocol):
    """The functions of `snapreplay_engine`."""

    INTERFACE: int
    Getter: Any
    LookUp: Any
    MutableObjects: Any
    Out: Any
    """Makes `Outputs`."""
    Places: type[Places]
    Shard: type[Shard]

    def crc32c(self, data: bytes, start: int, end: int, /) -> int | None:
        """Return the checksum of `data[start:end]`."""

    def records(
        self,
        data: bytes,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        first_ms: int,
        at_ms: int | None,
        topic: str,
        partition: int,
        from_offset: int,
        /,
    ) -> tuple[list[Any], int] | None:
        """Return the next `count` records in `data[start:end]`, without those before `from_offset`, and the place
        behind them."""

    def apply(
        self,
        run: list[Any],
        position: int,
        clock: Any,
        is_timed: bool,  # noqa: FBT001 - positional, as in Rust
        out: Any,
        view: Any,
        handler: Callable[..., Any],
        carried: Callable[..., Any],
        decode_key: Callable[[Any], Any] | None,
        decode_value: Callable[[Any], Any],
        takes_null: bool,  # noqa: FBT001 - positional, as in Rust
        make: Callable[..., Any],
        place: tuple[str, str, int],
        refuse: Callable[[object], BaseException],
        /,
    ) -> tuple[int, BaseException | None]:
        """Apply records until one needs Python. Return how many were applied, and the error of the next one if its
        codec or handler failed. `carried`: the handler of a record with headers."""

    def pack(
        self,
        outputs: Any,
        shapes: dict[str, tuple[int, int, int, int]],
        plain: type,
        state_partition: int,
        same_count: int,
        now_ms: int,
        /,
    ) -> list[tuple[str, int, list[tuple[bytes, int, int, int]]]] | None:
        """Return the record batches of outputs: topic, partition, and of each batch the body, the number of records,
        the first and the largest time."""

    def encode(
        self,
        keys: list[bytes],
        block: list[Any],
        pack: Callable[[Any], bytes],
        deleted: object,
        encoded: dict[bytes, bytes | None],
        /,
    ) -> tuple[list[Any], list[bytes], int]:
        """Add each key with its packed value to `encoded`, as staging does. Return the values that are not deleted,
        what was packed, and the bytes of all."""

    def are_flat(self, values: list[Any], cls: type, fields: list[tuple[str, list[type]]], /) -> bool | None:
        """Say whether all are of this class, and their attributes of these types; None: Python must say."""

    def digest(self, entries: Iterable[tuple[bytes, bytes]], /) -> tuple[int, int, int]:
        """Return the number of entries and both sums of their digest."""

    def prefetch(self, records: list[Any], are_texts: bool, shards: list[Any], /) -> int:  # noqa: FBT001 - positional, as in Rust
        """Read the entries of the keys of these records, texts or bytes, into the CPU's caches. Return how many
        probably exist."""

    def write(
        self,
        places: Any,
        values: Sequence[bytes | None],
        targets: list[Any],
        shards: list[Any],
        unchanged: list[bytes],
        /,
    ) -> tuple[int, int, int, int]:
        """Write entries as `Shards` does; return by how much count, both sums and bytes change."""

    def change(self, changes: Any, targets: list[Any], /) -> tuple[int, int, int, int] | None:
        """Write changes to the shards of their keys; return what `write` returns. None: Python must do it."""


def chosen(wanted: str) -> tuple[Compiled | None, str]:
    """Return the engine that `wanted`, a value of SNAPREPLAY_ENGINE, stands for, None for Python; and why it is not the
    compiled one.

    Raises:
        UsageError: there is no such value, or the engine that must be there is not.
    """
    if wanted not in ("auto", "pure", "compiled"):
        raise UsageError(f"{VARIABLE}={wanted!r} is none of auto, pure, compiled")
    if wanted == "pure":
        return None, f"{VARIABLE}=pure"
    try:
        found = cast("Compiled", importlib.import_module("snapreplay_engine"))
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "snapreplay_engine"
        why = "it is not installed" if absent else f"it cannot be loaded: {error}"
    else:
        if found.INTERFACE == INTERFACE:
            return found, ""
        why = f"the installed one has interface {found.INTERFACE}, this version needs {INTERFACE}"
    if wanted == "compiled":
        raise UsageError(f"{VARIABLE}=compiled, but the compiled engine cannot be used: {why}", hint=_HINT)
    return None, why


compiled, why_pure = chosen(os.environ.get(VARIABLE) or "auto")
name: Literal["compiled", "pure"] = "pure" if compiled is None else "compiled"
