"""The line between a service and the process that serves its HTTP, as far as probes need it: how messages lie on a
socket, the question for a status, and what a probe reads of the answer. `wire.py` has all other messages.

That process imports little else of `service` until it answers probes.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from snapreplay.service.control.vocabulary import Time, said

LENGTH = struct.Struct(">I")
UNREADY_SECONDS = 2.0  # then not ready: this process would not notice that its partitions were taken


class AskStatus(msgspec.Struct, frozen=True, tag="ask-status"):
    """Asks for a `StatusDocument`."""


class Logged(msgspec.Struct, frozen=True, tag="logged"):
    """A line for the service's log. Not answered."""

    level: int
    logger: str
    message: str

    def log(self) -> None:
        """Write it into the log of this process."""
        logging.getLogger(self.logger).log(self.level, "%s", self.message)


class Check(msgspec.Struct, frozen=True):
    """One line of a probe's answer."""

    name: str
    ok: bool
    detail: str = ""
    since: Annotated[Time | None, said("When it began to fail, where that is known.")] = None


class Probed(msgspec.Struct, frozen=True, tag="status"):
    """The members of a `StatusDocument` that a probe needs, and `facts`: None where there is no service yet."""

    live_checks: tuple[Check, ...] = ()
    ready_checks: tuple[Check, ...] = ()
    made_at: float = 0.0
    facts: dict[str, Any] | None = None


early = msgspec.msgpack.Decoder(AskStatus | Logged).decode
"""Decode what is asked or told before there is a service, without its length."""

_probed = msgspec.msgpack.Decoder(Probed)
_encoder = msgspec.msgpack.Encoder()


def frame(message: msgspec.Struct) -> bytes:
    """Encode a message as it goes over the socket."""
    try:
        encoded = _encoder.encode(message)
    except UnicodeEncodeError:  # an error of the app may quote half a character
        encoded = _encoder.encode(_encodable(msgspec.to_builtins(message)))
    return LENGTH.pack(len(encoded)) + encoded


def messages(line: socket.socket) -> Iterator[bytes]:
    """Read messages, without their lengths, until the other end is gone."""
    with line.makefile("rb") as stream:
        while len(head := stream.read(LENGTH.size)) == LENGTH.size:
            (size,) = LENGTH.unpack(head)
            encoded = stream.read(size)
            if len(encoded) == size:
                yield encoded


def probed(encoded: bytes) -> Probed | None:
    """Decode the answer to `AskStatus`; None: it is a refusal."""
    try:
        return _probed.decode(encoded)
    except msgspec.ValidationError:
        return None


def _encodable(node: Any) -> Any:
    """Return the same with an escape for each code point that UTF-8 does not have."""
    if isinstance(node, str):
        return node.encode("utf-8", "backslashreplace").decode()
    if isinstance(node, dict):
        return {_encodable(key): _encodable(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_encodable(each) for each in node]
    return node
