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
    """`pack` and `unpack` are msgspec's own functions, so that a lookup pays no further call.

    Encoded keys order like their bytes: that is by length first for short strings, and not like the
    keys.
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
        self.pack = msgspec.msgpack.Encoder().encode
        self.unpack: Callable[[bytes], K] = msgspec.msgpack.Decoder(key_type).decode

    def encode(self, key: object) -> bytes:
        """With all checks.

        Raises:
            RecordError: another type (a bool is no int here), or msgpack cannot hold it.
        """
        if type(key) is not self.type:
            raise self.refusal(key)
        try:
            return self.pack(key)
        except UNENCODABLE as error:
            raise self.refusal(key, error) from error

    def misfit(self, encoded: bytes, cause: Exception) -> StoredValueUnreadable:
        """The error for a stored key that failed to `unpack`: the keys had another type."""
        stored = msgspec.msgpack.decode(encoded)
        return StoredValueUnreadable(
            f"the stored key {stored!r} is no {self.type.__name__}: {cause}",
            hint=UNREADABLE_HINT,
            key=stored,
        )

    def refusal(self, key: object, cause: Exception | None = None) -> RecordError:
        """The error for a key that failed to `pack`, or that is not exactly of the type."""
        name = self.type.__name__
        if cause is not None:
            return RecordError(
                f"state key {key!r} cannot be encoded: {cause}",
                hint="ints have 64 bits, strings no lone surrogates",
                key=key,
            )
        return RecordError(
            f"state key {key!r} is of type {type(key).__name__}, the keys of this map are {name}",
            hint=f"convert it: {name}(...)",
            key=key,
        )
