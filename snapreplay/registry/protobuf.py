"""Protobuf, for one class that `protoc` has generated."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, EncodeError, Message

from snapreplay.errors import UsageError
from snapreplay.registry.framing import PREFIX_BYTES, Decode, Encode, Registered

_KNOWN = "google/protobuf/"  # every registry has these files


class ProtobufFormat:
    """Protobuf for one message. Has the attributes and methods of `framing.Format`."""

    kind = "PROTOBUF"

    def __init__(self, given: Any, schema: str | None) -> None:
        """Take the schema to write by; None: that of the class. Raises UsageError: it is no class of a message."""
        type_: Any = given
        if not (isinstance(given, type) and issubclass(given, Message)):
            raise UsageError(
                f"{given!r} is no Protobuf message",
                hint="pass a class from a module that `protoc --python_out` has made",
            )
        self.name = f"registry.protobuf({type_.DESCRIPTOR.name})"
        self._type = type_
        self._indexes = _indexes_of(type_.DESCRIPTOR)
        self.why_no_schema = ""
        self.schema: Registered | None = None
        file = type_.DESCRIPTOR.file
        imports = [each.name for each in file.dependencies if not each.name.startswith(_KNOWN)]
        if schema is not None:
            self.schema = Registered(self.kind, schema)
        elif imports:
            self.why_no_schema = f"{file.name} imports {', '.join(imports)}"
        else:
            proto = FileDescriptorProto()
            file.CopyToProto(proto)
            self.schema = Registered(self.kind, base64.b64encode(proto.SerializeToString(deterministic=True)).decode())

    def full_name(self, _: Registered) -> str:
        return str(self._type.DESCRIPTOR.full_name)

    def reader(self, _: Registered) -> Decode:
        parse, own, name = self._type.FromString, self._indexes, self._type.DESCRIPTOR.full_name

        def decode(data: bytes) -> Any:
            indexes, at = _read_indexes(data)
            if indexes != own:
                raise ValueError(f"it is message {indexes} of its file, and {name} is {own}: another message")
            try:
                return parse(data[at:])
            except DecodeError as error:
                raise ValueError(f"it is no {name}: {error}") from error

        return decode

    def writer(self, _: Registered) -> Encode:
        type_, head = self._type, _indexes_as_bytes(self._indexes)

        def encode(value: Any) -> bytes:
            if not isinstance(value, type_):
                raise TypeError(f"expected {type_.DESCRIPTOR.full_name}, got {type(value).__name__}")
            try:
                return head + bytes(value.SerializeToString(deterministic=True))
            except EncodeError as error:
                raise ValueError(str(error)) from error

        return encode


def _indexes_of(descriptor: Any) -> list[int]:
    """Return the place of a message in its file: its own index, after that of each message around it."""
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_indexes_of(outer), [each.name for each in outer.nested_types].index(descriptor.name)]


def _read_indexes(data: bytes) -> tuple[list[int], int]:
    """Return the message indexes behind the prefix, and where they end."""
    try:
        count, at = _unzigzag(data, PREFIX_BYTES)
        if count == 0:
            return [0], at
        if count > len(data):
            raise ValueError(f"it has {count} message indexes")
        indexes = []
        for _ in range(count):
            index, at = _unzigzag(data, at)
            indexes.append(index)
    except IndexError:
        raise ValueError("the bytes end inside the message indexes") from None
    return indexes, at


def _indexes_as_bytes(indexes: list[int]) -> bytes:
    if indexes == [0]:
        return b"\0"
    return b"".join(map(_zigzag, [len(indexes), *indexes]))


def _unzigzag(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of a message index, seven bits a byte, and where it ends.

    Raises:
        IndexError: the bytes end inside it.
        ValueError: it has more than 64 bits.
    """
    number = 0
    for shift in range(0, 64, 7):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise ValueError("a number in it has more than 64 bits")  # following it further would take time squared


def _zigzag(number: int) -> bytes:
    number, found = number << 1, bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
