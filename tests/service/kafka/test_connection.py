"""A connection to a peer that follows a script: what it does to a question is what its user learns."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, KafkaError, RequestTimedOutError
from aiokafka.protocol.admin import ApiVersionRequest, ApiVersionResponse_v0
from aiokafka.protocol.produce import ProduceRequest

from snapreplay.service.kafka.connection import Connection, connect
from tests.support.wire import HOST, Streams, listening, read_frame

ANSWER = ApiVersionResponse_v0(0, [(18, 0, 0)]).encode()


def frame(number: int, body: bytes = ANSWER) -> bytes:
    return struct.pack(">ii", len(body) + 4, number) + body


@asynccontextmanager
async def asked(answer: bytes | None, timeout_ms: int = 60_000) -> AsyncIterator[tuple[Connection, list[Connection]]]:
    """A connection whose peer sends these bytes at its second question, and ends it where there are none; None: it is
    silent. The list has the connection as often as it was called lost."""

    async def carry(client: Streams) -> None:
        await read_frame(client[0])
        client[1].write(frame(1))
        await read_frame(client[0])
        if answer is None:
            await asyncio.Event().wait()
        elif answer:
            client[1].write(answer)
            await client[0].read()

    async with listening(HOST, 0, carry) as port:
        connection = await connect(HOST, port, {"request_timeout_ms": timeout_ms})
        lost: list[Connection] = []
        connection.on_lost = lost.append
        yield connection, lost
        await connection.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", KafkaConnectionError),
        (frame(7), KafkaConnectionError),
        (frame(2, b"\x00"), KafkaConnectionError),
        (frame(2, ANSWER[:-3]), KafkaConnectionError),
        (None, RequestTimedOutError),
    ],
    ids=["closed", "another answer", "no answer", "half an answer", "silent"],
)
async def test_what_is_no_answer_loses_the_connection_and_all_that_is_under_way(
    answer: bytes | None, error: type[KafkaError]
) -> None:
    """Once; nothing more can be asked."""
    async with asked(answer, 300 if answer is None else 60_000) as (connection, lost):
        both = [asyncio.create_task(connection.send(ApiVersionRequest())) for _ in range(2)]
        await asyncio.wait(both)
        with pytest.raises(error):
            both[0].result()
        with pytest.raises(KafkaError):
            both[1].result()
        assert (lost, connection.is_open, connection.oldest) == ([connection], False, None)
        with pytest.raises(KafkaConnectionError):
            await connection.send(ApiVersionRequest())


@pytest.mark.parametrize("is_cut", [False, True])
async def test_answers_in_one_piece_or_byte_by_byte_are_those_of_their_questions(is_cut, monkeypatch) -> None:
    """However the network cuts them."""
    feed = Connection.data_received

    def by_byte(self: Connection, data: bytes) -> None:
        for at in range(len(data)):
            feed(self, data[at : at + 1])

    if is_cut:
        monkeypatch.setattr(Connection, "data_received", by_byte)
    async with asked(frame(2) + frame(3)) as (connection, lost):
        found = await asyncio.gather(*(connection.send(ApiVersionRequest()) for _ in range(2)))
        assert [each.api_versions for each in found] == [[(18, 0, 0)]] * 2
        assert not lost


async def test_a_question_that_is_given_up_does_not_take_the_next_ones_answer() -> None:
    async with asked(frame(2) + frame(3, ApiVersionResponse_v0(0, [(18, 0, 3)]).encode())) as (connection, _):
        given_up = asyncio.create_task(connection.send(ApiVersionRequest()))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert connection.oldest is not None
        assert (await connection.send(ApiVersionRequest())).api_versions == [(18, 0, 3)]
        assert connection.oldest is None


async def test_a_request_that_the_broker_does_not_speak_is_not_sent() -> None:
    async with asked(None) as (connection, lost):
        with pytest.raises(IncompatibleBrokerVersion):
            await connection.send(ProduceRequest(None, -1, 1000, []))
        assert (connection.is_open, connection.oldest, lost) == (True, None, [])
