"""The messages between a `RealHarness` and its service process: frames of msgpack over two pipes."""

from __future__ import annotations

from typing import IO, Any, ClassVar

import msgspec

from snapreplay.state.slices import Slices

_LENGTH_BYTES = 4


class Order(msgspec.Struct, frozen=True):
    """The first frame: which app to run. Its id and the names of its topics get the prefix. `follows`: a process that
    is gone had the app, and may still count as a member of its group."""

    app: str
    prefix: str
    partition_count: int
    settings: dict[str, Any]
    follows: bool


class BecomeLive(msgspec.Struct, frozen=True, tag=True):
    """A request that is answered when every partition is LIVE."""

    done: ClassVar[str] = "live"
    deadline_s: float


class CatchUp(msgspec.Struct, frozen=True, tag=True):
    """A request that is answered when all that is in the inputs now is committed."""

    done: ClassVar[str] = "caught up"
    deadline_s: float


class ReadState(msgspec.Struct, frozen=True, tag=True):
    """A request that is answered with the committed state of a partition."""

    done: ClassVar[str] = "read"
    deadline_s: float
    partition: int


class Stop(msgspec.Struct, frozen=True, tag=True):
    """A request that is answered after a graceful stop, as after SIGTERM."""

    done: ClassVar[str] = "stopped"
    deadline_s: float


class Acknowledged(msgspec.Struct, frozen=True, tag=True):
    """The answer that what was asked for is so."""


class StateRead(msgspec.Struct, frozen=True, tag=True):
    """Every entry of a state."""

    slices: Slices
    stream_time_ms: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """An error of the service; `kind` is its class."""

    kind: str
    message: str
    hint: str


Request = BecomeLive | CatchUp | ReadState | Stop
Answer = Acknowledged | StateRead | Failed

_orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
decode_order, decode_request, decode_answer = _orders.decode, _requests.decode, _answers.decode


def write_frame(pipe: IO[bytes], message: Order | Request | Answer) -> None:
    data = msgspec.msgpack.encode(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """Read a frame; None at the end of the pipe, and for a frame that its writer did not finish."""
    length = int.from_bytes(pipe.read(_LENGTH_BYTES), "big")
    data = pipe.read(length)
    return data if length and len(data) == length else None
