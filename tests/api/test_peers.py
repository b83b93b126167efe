"""Processes that follow each other over HTTP: real ones, killed, frozen, cut off, and what is no peer at all."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest

from snapreplay.api import events, fleet_views
from snapreplay.api.peer_client import UNKNOWN, Answer
from snapreplay.api.peers import PeerFollower, Peers
from snapreplay.service.clock import boot_seconds
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.core.liveness import PeerState
from snapreplay.service.runtime.tasks import cancel_and_wait
from tests.service.conftest import closed_port
from tests.support.deadlines import scaled
from tests.support.fake_control import FakeControl
from tests.support.served import LATE, Program, control_of, peer, program, served, until

__all__ = ["closed_port"]

Row = dict[str, Any]
Shown = Callable[[], Awaitable[list[Row]]]


def soon() -> HttpSettings:
    """Suspect who is silent for two seconds: on a busy machine for longer, as who is not frozen may be silent, too."""
    return HttpSettings(port=0, suspect_after_ms=round(scaled(2000)))


@asynccontextmanager
async def following(control: FakeControl, settings: HttpSettings | None = None) -> AsyncIterator[Shown]:
    """Serve `control`, and ask it for the rows of its peers."""
    async with served(control, settings or soon()) as url, shown_at(url) as shown:
        yield shown


@asynccontextmanager
async def watching(control: FakeControl, settings: HttpSettings | None = None) -> AsyncIterator[Shown]:
    """Follow the peers of `control` as its HTTP process does, in this process: that saves a start."""

    def suspect(process_id: str, why: str, silent_seconds: float | None) -> None:
        control.suspect(process_id, why, silent_seconds=silent_seconds)

    followed = Peers((settings or soon()).suspect_after_ms / 1000, suspect)
    running = asyncio.create_task(followed.run(control.document))

    async def rows() -> list[Row]:
        own = control.document()
        _, *others = fleet_views.fleet(own, followed.known(own), boot_seconds())
        return [msgspec.json.decode(msgspec.json.encode(each.process)) for each in others]

    try:
        yield rows
    finally:
        await cancel_and_wait(running)


@asynccontextmanager
async def shown_at(url: str) -> AsyncIterator[Shown]:
    """Ask the process at this address for the rows of its peers."""
    async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:

        async def rows() -> list[Row]:
            answer = await client.get("/api/v1/processes", timeout=scaled(10))
            this, *others = answer.json()["items"]
            assert this["state"] == "self"
            return list(others)

        yield rows


async def become(shown: Shown, *states: str) -> list[Row]:
    """Wait until the peers are in these states."""
    rows: list[Row] = []

    async def are() -> bool:
        rows[:] = await shown()
        return [each["state"] for each in rows] == [*states]

    await until(are, f"{states}")
    return rows


async def suspected(control: FakeControl, process_id: str, times: int = 1) -> str:
    """Wait until this process, and no other, has been suspected so often; return why it was the last time."""

    async def is_so() -> bool:
        return len(control.suspected) >= times

    await until(is_so, f"suspected: {process_id}")
    assert [name for name, _ in control.suspected] == [process_id] * times
    assert control.silent == [why.startswith("silent") for _, why in control.suspected]
    return control.suspected[-1][1]


@asynccontextmanager
async def answering(answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that is no peer, and answers so to every request."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await answer(writer)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    async with server:
        yield "http://127.0.0.1:{}".format(*server.sockets[0].getsockname()[1:2])


@pytest.fixture
def two() -> Any:
    with program("p2") as started:
        yield started


async def test_processes_know_each_other_until_one_says_bye(two: Program):
    """Each has a row with what it is and has; one that ends in good order is not suspected."""
    one = control_of("p1", two.peer, peer("p3", ""))
    async with following(one, LATE) as shown:
        row, without_address = await become(shown, "reachable", "no_address")
        assert (row["process_id"], row["host"], row["url"]) == ("p2", "host-p2", two.peer.url)
        assert (row["version"], row["app_version"], row["partitions"]) == ("0.1.0", "7", [0, 1, 2, 3])
        assert 0 <= row["age_seconds"] < scaled(30)
        assert (row["last_error"], row["is_member"]) == ("", True)
        assert (without_address["version"], without_address["url"]) == (None, None)
        await asyncio.to_thread(two.end)
        row, _ = await become(shown, "ended", "no_address")
        assert row["partitions"] == [0, 1, 2, 3]
    assert one.suspected == []


async def test_a_killed_process_is_suspected_by_all_others_at_once(two: Program):
    """Without waiting for silence, of which there would be ten minutes here. The rest of what is known stays."""
    one, three = control_of("p1", two.peer), control_of("p3", two.peer)
    async with following(one, LATE) as by_one, watching(three, LATE) as by_three:
        await become(by_one, "reachable")
        await become(by_three, "reachable")
        two.send(signal.SIGKILL)
        for each in (one, three):
            assert "refuses connections" in await suspected(each, "p2")
        (row,) = await become(by_one, "dead")
        assert "its stream ended, and 127.0.0.1 port" in row["last_error"]
        assert row["app_version"] == "7"
        one.peers = ()

        async def has_left() -> bool:
            (row,) = await by_one()
            return not row["is_member"]

        await until(has_left, "it has left the group, and still gets the events")


async def test_a_frozen_process_is_suspected_once_and_found_again(two: Program):
    """Its HTTP answers all the time, and says that its service is silent."""
    one = control_of("p1", two.peer)
    # Each suspicion is counted: a standstill of 3 s on a busy machine must be none.
    async with following(one, HttpSettings(port=0, suspect_after_ms=soon().suspect_after_ms + 3000)) as shown:
        await become(shown, "reachable")
        two.send(signal.SIGSTOP)
        assert (await suspected(one, "p2")).startswith("silent for ")
        await become(shown, "dead")
        await suspected(one, "p2")
        two.send(signal.SIGCONT)
        await become(shown, "reachable")
        await suspected(one, "p2")
        two.send(signal.SIGSTOP)
        await suspected(one, "p2", times=2)


@pytest.mark.parametrize(
    ("app_id", "process_id", "error"),
    [
        ("ledger", "p9", "process p9 of app 'ledger' answers there"),
        ("other", "p2", "process p2 of app 'other' answers"),
    ],
    ids=["shared", "another app"],
)
async def test_an_address_of_another_process_is_named_and_never_used(app_id, process_id, error):
    """Two processes advertise one address, or it is that of another app."""
    async with served(control_of(process_id, app_id=app_id)) as wrong:
        one = control_of("p1", peer("p2", wrong, 4))
        async with watching(one) as shown:
            (row,) = await become(shown, "wrong_address")
            assert error in row["last_error"]
            assert (row["partitions"], row["age_seconds"]) == ([4], None)
    assert one.suspected == []


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = events.status(events.members(control_of("p2").document()))


def chunk(part: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(part), part)


async def nothing(_: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def another_protocol(writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ESMTP\r\n")
    await writer.drain()


async def another_page(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(b"<html>\n\n") + b"0\r\n\r\n")
    await writer.drain()


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(WHOLE + b"data: "))
    while True:
        writer.write(chunk(b"x" * 100_000))
        await writer.drain()


async def not_found(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


async def bad_gateway(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


async def another_version(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(WHOLE.replace(b'"live"', b'"dreaming"') + events.ages(events.Ages(0, 0))))
    await asyncio.sleep(3600)


@pytest.mark.parametrize(
    ("answer", "state", "error"),
    [
        (nothing, "unreachable", "it sends nothing"),
        (another_protocol, "unreachable", "the answer is not HTTP"),
        (another_page, "unreachable", "its stream ended"),
        (endless, "unreachable", "an event has more than 33,554,432 bytes"),
        (another_version, "reachable", "its status cannot be read by this version"),
        (not_found, "wrong_address", "the program there answers 404"),
        (bad_gateway, "unreachable", "a proxy answers 502 for it"),
    ],
)
async def test_what_is_no_peer_is_reported_and_not_suspected(answer, state, error):
    """Anything that it sends, or never sends; the memory and the time for it are bounded."""
    async with answering(answer) as url:
        one = control_of("p1", peer("p2", url))
        async with watching(one, LATE) as shown:

            async def is_reported() -> bool:
                (row,) = await shown()
                return error in row["last_error"] and row["state"] == state

            await until(is_reported, error)
    assert one.suspected == []


@pytest.mark.whole
async def test_a_process_that_dies_behind_a_proxy_is_suspected_by_its_silence(two: Program):
    """The proxy continues to answer, so no connection is refused."""

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        try:
            theirs, ours = await asyncio.open_connection("127.0.0.1", two.port)
        except OSError:
            await bad_gateway(writer)
        else:
            ours.write(asked)
            while part := await theirs.read(65536):
                writer.write(part)
            ours.close()
        writer.close()

    proxy = await asyncio.start_server(through, "127.0.0.1", 0)
    one = control_of("p1", peer("p2", "http://127.0.0.1:{}".format(*proxy.sockets[0].getsockname()[1:2])))
    async with proxy, watching(one) as shown:
        await become(shown, "reachable")
        two.send(signal.SIGKILL)
        assert (await suspected(one, "p2")).startswith("silent for ")
        await become(shown, "dead")


async def test_a_process_that_paused_suspects_no_other(two: Program):
    """Its own clock continued meanwhile, and what the others sent waits to be read."""
    one, settings = control_of("p1", two.peer), soon()
    async with watching(one, settings) as shown:
        await become(shown, "reachable")
        time.sleep(1.5 * settings.suspect_after_ms / 1000)  # noqa: ASYNC251 - the loop is to be blocked

        async def has_heard() -> bool:
            (row,) = await shown()
            return bool(row["state"] == "reachable" and row["age_seconds"] < scaled(1))

        await until(has_heard, "it has heard its peer again")
    assert one.suspected == []


async def test_a_suspected_process_is_not_found_again_by_what_was_said_of_its_service_before(
    monkeypatch: pytest.MonkeyPatch,
):
    """Its HTTP continues; the suspicion comes between two of its events, of which the next one says so, too."""
    found: list[str] = []
    over = asyncio.Event()
    follower = PeerFollower(
        control_of("p1").document(), peer("p2", "http://127.0.0.1:1"), 5.0, lambda why, _: found.append(why)
    )

    async def parts() -> AsyncIterator[bytes]:
        yield events.status(events.members(control_of("p2").document()))
        for silent_seconds in (4.5, 5.5):
            yield events.ages(events.Ages(silent_seconds, 0.0))
            follower.tick(time.monotonic() + 0.75, 0.0)
        over.set()
        await asyncio.Event().wait()

    @asynccontextmanager
    async def asked(*_: object, **__: object) -> AsyncIterator[Answer]:
        yield Answer(200, parts(), ("127.0.0.1", 1))

    monkeypatch.setattr("snapreplay.api.peers.asked", asked)
    following = asyncio.create_task(follower.run(UNKNOWN))
    await over.wait()
    following.cancel()
    assert len(found) == 1
    assert follower.life.state is PeerState.DEAD
