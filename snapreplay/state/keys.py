"""Keys of a map, as bytes and as text. Pure.

A key is a str, bytes or an int, encoded as msgpack; or a tuple of them, encoded so that the order of the bytes is the
order of the tuples (docs/FORMAT.md has the bytes). The first byte of a tuple is one that MessagePack never uses, so a
reader needs no type to tell the two apart.

As text, for URLs and command lines, a str is written as it is, an int in digits, bytes in base64, and a tuple as a JSON
array of its parts.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec

from snapreplay.errors import RecordError, UsageError
from snapreplay.state.sorted_entries import KeyBounds
from snapreplay.state.values import StoredValueUnreadable

K = TypeVar("K", bound=str | bytes | int | tuple[str | bytes | int, ...])

KEY_TYPES = (str, bytes, int)
UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What an encoder raises for a key or value that it cannot hold."""


class MissingKey(KeyError):
    """A key that is not in the map. Its text says where and what to do; that of a plain KeyError is the bare key."""

    def __init__(
        self,
        place: str,
        key: object,
        why: str = "which has no default",
        instead: str = "MapState(…, default=…)` or `{}.get(key)",
    ) -> None:
        """Take `place`: of the map; `instead`: what to write, with {} for the place."""
        super().__init__(key)
        self.message = f"{place}[{key!r}] is not in the map, {why}"
        self.hint = f"use `{instead.format(place)}`"

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})"


class KeyCodec(Generic[K]):
    """A codec of keys; `pack` and `unpack` are plain functions, so that a lookup costs no further call.

    Attributes:
        sorts_encoded: the order of the encoded keys is that of the keys. So it is for tuples; msgpack has short strings
            first.
        own_type: keys of exactly this type are right; if it is None, each needs a `check`.
        parts: the types of the parts of a tuple; of other keys empty.
        place: the map in messages: "state", or "state.items" in a named store.
    """

    def __init__(self, key_type: type[K]) -> None:
        """Take `key_type`, or raise UsageError: not str, bytes, int or a tuple of a fixed number of them."""
        parts = get_args(key_type) if get_origin(key_type) is tuple else ()
        if key_type not in KEY_TYPES and not (parts and all(part in KEY_TYPES for part in parts)):
            raise UsageError(
                f"MapState: {key_type!r} cannot be a key type",
                hint="use str, bytes, int or a tuple of them such as tuple[str, int]; encode anything else into one",
            )
        self.type = key_type
        self.place = "state"
        self.own_type: type | None = None if parts else key_type
        self.sorts_encoded = bool(parts)
        self.parts: tuple[type, ...] = parts
        self.pack: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
        self.unpack: Callable[[bytes], K] = msgspec.msgpack.Decoder(key_type).decode
        if parts:
            self.pack, self.unpack = tuple_packer(parts), tuple_unpacker(parts, self._unpack_tuple)

    @property
    def name(self) -> str:
        """The name of the type: "str", "tuple[bytes, str]"."""
        return self.type.__name__ if self.own_type else repr(self.type)

    def check(self, key: object) -> None:
        """Raise RecordError if the key has another type (a bool is not an int here)."""
        if self.parts:
            if type(key) is tuple and tuple(map(type, key)) == self.parts:
                return
        elif type(key) is self.type:
            return
        raise self.refusal(key)

    def bounds(self, bounds: KeyBounds, *, is_ordered: bool) -> KeyBounds:
        """Check the bounds of a range: each is a key, the first parts of one, or as a prefix a part of a text.

        Returns the same range of encoded keys, if they are in order, else these bounds.

        Raises:
            RecordError: one is neither of them, or cannot be encoded.
            UsageError: the map is not ordered.
        """
        if not is_ordered:
            raise UsageError(
                f"{self.place}.range(): the map does not keep its keys in order",
                hint="declare it: `MapState(…, ordered=True)`",
            )
        for name, bound in zip(KeyBounds._fields, bounds, strict=True):
            if bound is not None:
                self._check_bound(bound, is_prefix=name == "prefix")
        return self._encoded_bounds(bounds) if self.sorts_encoded else bounds

    def _encoded_bounds(self, bounds: KeyBounds) -> KeyBounds:
        prefix, start, end = map(self._encoded_bound, bounds)
        if prefix is not None:
            behind = behind_prefix(prefix)
            start = prefix if start is None else max(start, prefix)
            end = behind if end is None else min(end, behind)
        return KeyBounds(None, start, end)

    def _encoded_bound(self, bound: Any) -> bytes | None:
        if bound is None:
            return None
        try:
            return tuple_packer(self.parts[: len(bound)])(bound)
        except UNENCODABLE as error:
            raise self.refusal(bound, error) from error

    def _check_bound(self, bound: object, *, is_prefix: bool) -> None:
        if self.parts and type(bound) is tuple:
            if tuple(map(type, bound)) == self.parts[: len(bound)]:
                return
        elif type(bound) is self.own_type and not (is_prefix and self.type is int):
            return
        raise RecordError(
            f"{self.place}.range(): {bound!r} is no {'prefix' if is_prefix else 'bound'} of a {self.name}",
            hint="pass a key, or the first parts of one as a tuple; ints have no prefix",
            key=bound,
        )

    def encode(self, key: object) -> bytes:
        """Encode with all checks, or raise RecordError: as `check`, or the key cannot be encoded."""
        self.check(key)
        try:
            return self.pack(key)
        except UNENCODABLE as error:
            raise self.refusal(key, error) from error

    def decode(self, encoded: bytes) -> K:
        """Decode a stored key, or raise StoredValueUnreadable: it is of another type."""
        try:
            return self.unpack(encoded)
        except msgspec.MsgspecError as error:
            raise self.misfit(encoded, error) from error

    def of_items(self, items: list[Any]) -> list[K]:
        """Return the keys of items of an `EntryIndex`. Raises as `decode`."""
        if not self.sorts_encoded:
            return items
        b"".join(items)  # their cache misses overlap, which saves a tenth of the time of a range (measured)
        try:
            return list(map(self.unpack, items))
        except msgspec.MsgspecError:
            return list(map(self.decode, items))  # it names the key

    def misfit(self, encoded: bytes, cause: Exception) -> StoredValueUnreadable:
        """Return the error for a stored key that failed to `unpack`: the keys had another type."""
        stored = stored_key(encoded)
        return StoredValueUnreadable(
            f"{self.place}: the stored key {stored!r} is not of type {self.name}: {cause}",
            hint="nothing is lost: if this version has written nothing yet, deploy the version that wrote it, with its"
            ' types, again; or process the inputs again under a new app id: `App("NEW-ID", …)`,'
            " `snapreplay topics ensure MODULE:APP`, `snapreplay init MODULE:APP`",
            key=stored,
        )

    def refusal(self, key: object, cause: Exception | None = None) -> RecordError:
        """Return the error for a key that failed to `pack`, or that is not exactly of the type."""
        if cause is not None:
            return RecordError(
                f"{self.place} key {key!r} cannot be encoded: {cause}",
                hint="use ints of at most 64 bits and strings without lone surrogates",
                key=key,
            )
        return RecordError(
            f"{self.place} key {key!r} {self._difference(key)}, but the keys of this map are {self.name}",
            hint=self._conversion(key),
            key=key,
        )

    def _conversion(self, key: object) -> str:
        """Say how the key becomes one of this map. `str(…)` would make the keys 'None' and "b'a'"."""
        if self.own_type is None:
            return f"pass a {self.name}"
        if key is None:
            return "a record without a key has no entry of its own: choose one key for all of them, or skip them"
        if isinstance(key, bytes) and self.own_type is str:
            return "decode it: `key.decode()`"
        if isinstance(key, str) and self.own_type is bytes:
            return "encode it: `key.encode()`"
        if isinstance(key, int) and self.own_type is bytes:
            return "encode it: `str(key).encode()`"
        if isinstance(key, tuple):
            return f"declare `MapState(tuple[…], …)`, or choose one part of it as the {self.name}"
        return f"convert it: {self.name}(...)"

    def _difference(self, key: object) -> str:
        if type(key) is tuple and len(key) == len(self.parts):
            for number, (part, wanted) in enumerate(zip(key, self.parts, strict=True), 1):
                if type(part) is not wanted:
                    return f"has a part of type {type(part).__name__} in place {number}"
        if type(key) is tuple and self.parts:
            return f"has {len(key)} of {len(self.parts)} parts"
        return f"is of type {type(key).__name__}"

    def _unpack_tuple(self, encoded: bytes) -> K:
        try:
            key: Any = unpack_tuple(encoded)
        except ValueError as error:
            raise msgspec.ValidationError(f"Expected `{self.name}`: {error}") from error
        if tuple(map(type, key)) != self.parts:
            raise msgspec.ValidationError(f"Expected `{self.name}`")
        made: K = key
        return made


def stored_key(encoded: bytes) -> object:
    """Return what an encoded key holds, without knowing its type. Raises ValueError: it is no key."""
    if is_tuple_key(encoded):
        return unpack_tuple(encoded)
    return msgspec.msgpack.decode(encoded)


# --------------------------------------------------------------------- tuples

Part = str | bytes | int

FIRST = b"\xc1"
_BYTES, _STR, _INT = 1, 2, 3
_MIDDLE = 1 << 63


def is_tuple_key(encoded: bytes) -> bool:
    """Say whether this is a key of several parts."""
    return encoded.startswith(FIRST)


def tuple_packer(part_types: tuple[type, ...]) -> Callable[[Any], bytes]:
    """Return the encoder of tuples with parts of exactly these types, which it does not check.

    It raises ValueError for a string that UTF-8 cannot hold, and OverflowError for an int beyond 64 bits, signed.
    """
    packers = [_PACKERS[each] for each in part_types]
    if len(packers) == 2:  # the most frequent case costs half as much
        pack_one, pack_other = packers

        def pack_pair(key: tuple[Any, Any]) -> bytes:
            one, other = key
            return b"\xc1%b%b" % (pack_one(one), pack_other(other))

        return pack_pair

    def pack(key: tuple[Any, ...]) -> bytes:
        return FIRST + b"".join([pack_part(part) for pack_part, part in zip(packers, key)])  # noqa: B905 - as many

    return pack


def tuple_unpacker(part_types: tuple[type, ...], decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return the decoder of tuples with parts of exactly these types: `decode`, or one that keeps the parts before
    the last one of the last key. Those of a range often share them; that takes a third to a half of the time."""
    # One object, so that another thread never sees the head of one key and the parts of another.
    known: tuple[bytes | None, tuple[Any, ...]] = (None, ())

    def unpack_int(encoded: bytes) -> Any:
        nonlocal known
        head = encoded[:-8]
        known_head, known_parts = known
        if head == known_head:
            return *known_parts, int.from_bytes(encoded[-8:]) - _MIDDLE
        key = decode(encoded)
        known = head, key[:-1]
        return key

    def unpack_text(encoded: bytes) -> Any:
        nonlocal known
        head, known_parts = known
        # The head ends with the tag of the text. If the first zero byte is the last one, nothing is escaped or follows.
        if head is not None and encoded.startswith(head) and encoded.find(0, len(head)) == len(encoded) - 1:
            try:
                return *known_parts, encoded[len(head) : -1].decode()
            except UnicodeDecodeError:
                return decode(encoded)
        key = decode(encoded)
        known = encoded[: 1 - len(_PACKERS[str](key[-1]))], key[:-1]
        return key

    if len(part_types) == 1 or part_types[-1] is bytes:
        return decode
    return unpack_int if part_types[-1] is int else unpack_text


def unpack_tuple(encoded: bytes) -> tuple[Part, ...]:
    """Unpack a key, or raise ValueError: not what `tuple_packer` makes."""
    if not is_tuple_key(encoded):
        raise ValueError("it is not a key of several parts")
    parts: list[Part] = []
    at, end = 1, len(encoded)
    while at < end:
        tag = encoded[at]
        if tag == _INT and at + 9 <= end:
            parts.append(int.from_bytes(encoded[at + 1 : at + 9], "big") - _MIDDLE)
            at += 9
        elif tag in (_BYTES, _STR):
            stop = encoded.index(0, at + 1)
            while encoded[stop + 1 : stop + 2] == b"\xff":
                stop = encoded.index(0, stop + 2)
            raw = encoded[at + 1 : stop].replace(b"\0\xff", b"\0")
            parts.append(raw.decode() if tag == _STR else raw)
            at = stop + 1
        else:
            raise ValueError(f"there is no part at byte {at}")
    if not parts:
        raise ValueError("it has no part")
    return tuple(parts)


def behind_prefix(encoded: bytes) -> bytes:
    """Return a bound behind all keys of which the first parts are these, and before those that follow."""
    # Larger than the first byte of any part. A part that has a zero byte next has the same two bytes and then more.
    return encoded + b"\xff"


_PACKERS: dict[type, Callable[[Any], bytes]] = {
    bytes: lambda part: b"\x01%b\0" % part.replace(b"\0", b"\0\xff"),
    str: lambda part: b"\x02%b\0" % part.encode().replace(b"\0", b"\0\xff"),
    int: lambda part: b"\x03" + (part + _MIDDLE).to_bytes(8, "big"),
}


# --------------------------------------------------------------------- text

INT_CHARS_MAX = 20
"""Of 64 bits, with a sign."""
_HOW = {str: "write it as it is", int: "write it in digits, such as 7", bytes: "write it in base64, such as dGVh"}


class WrongKey(UsageError):
    """A text is not a key of this map, or not a bound of its keys. The message does not repeat it, because it may be
    secret or very long.

    Attributes:
        why: of what type the keys are, and how such a key is written.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def key_of(text: str, codec: KeyCodec[K]) -> K:
    """Read a key, or raise WrongKey."""
    key: Any = _read(text, codec)
    try:
        codec.encode(key)
    except RecordError:
        raise _wrong(codec) from None
    return key  # type: ignore[no-any-return]  # the codec has checked it


def bound_of(text: str, codec: KeyCodec[Any]) -> Any:
    """Read a key, or the first parts of one. `KeyCodec.bounds` checks it. Raises WrongKey."""
    return _read(text, codec)


def text_of(key: object) -> str:
    """Write a key as `key_of` reads it."""
    if isinstance(key, str | int):
        return str(key)
    if isinstance(key, bytes):
        return base64.b64encode(key).decode()
    return msgspec.json.encode(key).decode()


def _read(text: str, codec: KeyCodec[Any]) -> Any:
    try:
        if codec.parts:
            raw = msgspec.json.decode(text, type=list[msgspec.Raw])
            if len(raw) <= len(codec.parts):
                return tuple(msgspec.json.decode(each, type=part) for each, part in zip(raw, codec.parts, strict=False))
        elif codec.type is str:
            return text
        elif codec.type is int and len(text) <= INT_CHARS_MAX and str(int(text)) == text:
            return int(text)
        elif codec.type is bytes and text_of(found := base64.b64decode(text, validate=True)) == text:
            return found
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    raise _wrong(codec)


def _wrong(codec: KeyCodec[Any]) -> WrongKey:
    how = _HOW.get(codec.type, 'write its parts as a JSON array, such as ["tea",7]; bytes in it in base64')
    return WrongKey(f"the keys of this store are {codec.name}: {how}")
