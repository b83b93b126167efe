"""Keys of a map: exactly str, bytes or int, encoded as msgpack. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from snapreplay.errors import RecordError, UsageError
from snapreplay.state.values import UNREADABLE_HINT, StoredValueUnreadable

K = TypeVar("K", bound=str | bytes | int)

KEY_TYPES = (str, bytes, int)
UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What msgspec's encoder raises for a key or value that msgpack cannot hold."""


class KeyCodec(Generic[K]):
    """`pack` and `unpack` are msgspec's own functions, so that a lookup costs no further call.

    Encoded keys are ordered by their bytes, not as the keys are: short strings by length first.
    """

    def __init__(self, key_type: type[K]) -> None:
        """
        Raises:
            UsageError: not str, bytes or int.
        """
        if key_type not in KEY_TYPES:
            raise UsageError(
                f"MapState: {key_type!r} cannot be a key type",
                hint="use str, bytes or int; encode anything else into one of them",
            )
        self.type = key_type
        self.place = "state"  # in messages; "state.items" in a named store
        self.pack = msgspec.msgpack.Encoder().encode
        self.unpack: Callable[[bytes], K] = msgspec.msgpack.Decoder(key_type).decode

    def encode(self, key: object) -> bytes:
        """Encode with all checks.

        Raises:
            RecordError: the key has another type (a bool is not an int here), or msgpack cannot hold it.
        """
        if type(key) is not self.type:
            raise self.refusal(key)
        try:
            return self.pack(key)
        except UNENCODABLE as error:
            raise self.refusal(key, error) from error

    def misfit(self, encoded: bytes, cause: Exception) -> StoredValueUnreadable:
        """Return the error for a stored key that failed to `unpack`: the keys had another type."""
        stored = msgspec.msgpack.decode(encoded)
        return StoredValueUnreadable(
            f"{self.place}: the stored key {stored!r} is not of type {self.type.__name__}: {cause}",
            hint=UNREADABLE_HINT,
            key=stored,
        )

    def refusal(self, key: object, cause: Exception | None = None) -> RecordError:
        """Return the error for a key that failed to `pack`, or that is not exactly of the type."""
        name = self.type.__name__
        if cause is not None:
            return RecordError(
                f"{self.place} key {key!r} cannot be encoded: {cause}",
                hint="use ints of at most 64 bits and strings without lone surrogates",
                key=key,
            )
        return RecordError(
            f"{self.place} key {key!r} is of type {type(key).__name__}, but the keys of this map are {name}",
            hint=f"convert it: {name}(...)",
            key=key,
        )
