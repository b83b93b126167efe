"""Requests that are passed on to the processes that own the partitions."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import httpx2
import msgspec
import pytest

from snapreplay.api import events, fleet_views, problems
from snapreplay.api.events import Ages
from snapreplay.api.fleet_views import Covered, Process, Scope
from snapreplay.api.forwarding import Begun, Forwarder, shares
from snapreplay.api.operation_routes import _begun
from snapreplay.api.peer_client import NO_HEADERS
from snapreplay.api.peers import Known
from snapreplay.api.problems import ProblemError
from snapreplay.errors import PartitionNotLive
from snapreplay.service.control.operations import Command, TriggerSnapshot
from snapreplay.service.control.protocol import StatusDocument
from snapreplay.service.control.status import PartitionStatus, StandbyStatus
from snapreplay.service.core.assignment import Copies
from snapreplay.service.core.liveness import PeerState
from snapreplay.service.core.phase import Phase
from tests.api.conftest import Current
from tests.support.deadlines import scaled, within
from tests.support.fake_control import FACTS, FAILED, LIVE, NOW, FakeControl
from tests.support.served import LATE, control_of, peer, served, until


def partition(number: int, phase: Phase = Phase.LIVE, epoch: int | None = 1) -> PartitionStatus:
    return PartitionStatus(number, phase, owner_epoch=epoch)


def app(
    own: list[PartitionStatus],
    copies: StandbyStatus | None = None,
    given: Copies | None = None,
    **others: tuple[PeerState, list[PartitionStatus] | None],
) -> Covered:
    """Process p1, and others by name; None: it has told nothing, and the group gave it partition 5."""
    peers = tuple(peer(name, f"http://{name}", 5) for name in others)
    held = (copies,) if copies else ()
    known = [
        Known(each, state, NOW, "why", None if told is None else StatusDocument(FACTS, tuple(told), held, copies=given))
        for each, (state, told) in zip(peers, others.values(), strict=True)
    ]
    facts = msgspec.structs.replace(FACTS, process_id="p1")
    document = StatusDocument(facts, tuple(own), peers=peers, copies=given)
    return Covered(fleet_views.fleet(document, known, 0.0), Scope.APP)


def who(covered: Covered) -> dict[int, tuple[str | None, str]]:
    """Say for each partition whose it is, and its phase now."""
    found = fleet_views.held(covered)
    return {each.partition: (each.process.process_id if each.process else None, each.phase_now) for each in found}


def test_each_partition_has_one_row_of_the_process_that_most_likely_has_it():
    """The newest claim of those that can be asked; then what was last known; then the group's word; then none."""
    covered = app(
        [partition(0), partition(1, Phase.CLOSED), partition(2, Phase.FENCED, 8), partition(3, Phase.ASSIGNED, None)],
        p2=(PeerState.REACHABLE, [partition(0, Phase.LIVE, 7), partition(1), partition(2)]),
        p3=(PeerState.DEAD, [partition(3, Phase.LIVE, 9), partition(2, Phase.LIVE, 9), partition(4)]),
        p4=(PeerState.UNREACHABLE, None),
    )
    assert who(covered) == {
        0: ("p2", "live"),
        1: ("p2", "live"),
        2: ("p2", "live"),
        3: ("p1", "assigned"),
        4: ("p3", "unknown"),
        5: ("p4", "unknown"),
    }
    assert who(app([], p2=(PeerState.REACHABLE, []))) == dict.fromkeys(range(6), (None, "unknown"))


def test_what_this_process_has_is_its_own_matter():
    """So is a partition without an owner: it says best why it refuses."""
    covered = app([partition(0), partition(1)], p2=(PeerState.REACHABLE, [partition(2)]))
    assert shares(covered, [0, 1, 3]) == ((0, 1, 3), [])


def test_what_others_have_is_theirs():
    """All that are live: those of each process, of this one without numbers."""
    covered = app(
        [partition(0)],
        p2=(PeerState.REACHABLE, [partition(2), partition(1, Phase.LOADING)]),
        p3=(PeerState.DEAD, [partition(4)]),
    )
    own, ((other, numbers),) = shares(covered, None)
    assert (own, other.process_id, numbers) == (None, "p2", [2])
    own, others = shares(covered, [2])
    assert (own, [numbers for _, numbers in others]) == ((), [[2]])


def test_what_cannot_be_done_is_refused_before_anything_is_begun():
    """A process that cannot be asked, a partition that is not live there, none that is live at all."""
    covered = app(
        [partition(0)], p2=(PeerState.DEAD, [partition(2)]), p3=(PeerState.REACHABLE, [partition(3, Phase.LOADING)])
    )
    with pytest.raises(ProblemError, match=r"process p2 on host-p2 \(dead\) would have to do it: why"):
        shares(covered, [0, 2])
    with pytest.raises(PartitionNotLive, match="it is loading, not live, in process p3"):
        shares(covered, [0, 3])
    with pytest.raises(ProblemError, match="no partition is live"):
        shares(app([], p2=(PeerState.DEAD, [partition(2)])), None)


class Refusing(Forwarder):
    """Both others refuse: p2 at once, because its loop is blocked; p3 does not answer."""

    async def ask(self, process: Process, command: Command, passed_on: Mapping[str, str] = NO_HEADERS) -> Begun:
        if process.process_id == "p2":
            refused = ProblemError(problems.LOOP_BLOCKED, "nothing was started")
            raise problems.of_peer(process, 503, bytes(problems.response(refused, "/").body))
        raise problems.owner_away(process, "it may or may not have done it")


async def test_an_owner_that_may_have_begun_it_is_not_hidden_by_one_that_has_not():
    """After `loop-blocked` the page asks again: the owner that does not answer would begin it twice."""
    covered = app([], p2=(PeerState.REACHABLE, [partition(1)]), p3=(PeerState.REACHABLE, [partition(2)]))
    here = cast("Any", SimpleNamespace(forwarder=Refusing(cast("Any", None)), passed_on={}))
    with pytest.raises(ProblemError, match=r"process p3 on host-p3.*it may or may not have done it") as raised:
        await _begun(here, covered, TriggerSnapshot([1, 2], ""))
    assert raised.value.kind is problems.OWNER_AWAY


@pytest.mark.parametrize(
    ("status", "document", "kind", "detail", "errors"),
    [
        (
            422,
            b'{"type": "urn:snapreplay:problem:invalid-request", "title": "The request is not valid",'
            b' "status": 422, "detail": "key: no", "instance": "/", "errors": [{"where": "key", "message": "no"}],'
            b' "added later": 1}',
            "invalid-request",
            "process p2 on host-p2: key: no",
            [{"where": "key", "message": "no"}],
        ),
        (404, b'{"type": "about:blank", "title": "Not Found"}', "owner-unreachable", "of a version without", None),
        (401, b'{"type": "urn:snapreplay:problem:no-token"}', "owner-unreachable", "it answers 401", None),
        (502, b"<html>", "owner-unreachable", "it answers 502", None),
    ],
)
def test_a_refusal_by_another_process_is_passed_on_as_a_whole(status, document, kind, detail, errors):
    """If it concerns the caller."""
    refused = problems.of_peer(app([], p2=(PeerState.REACHABLE, [])).says[1].process, status, document)
    answer = msgspec.json.decode(problems.response(refused, "/").body)
    assert answer["type"] == f"{problems.URN}{kind}"
    assert detail in answer["detail"]
    assert answer.get("errors") == errors


# ---- two real ones


class Two(NamedTuple):
    """Two processes that follow each other; `ask` asks the first one."""

    one: FakeControl
    two: FakeControl
    ask: httpx2.AsyncClient
    ask_two: httpx2.AsyncClient


@pytest.fixture(scope="module")
async def http_of_two() -> AsyncIterator[tuple[Current, str, Current, str]]:
    """The HTTP of two processes, whose controls each test replaces: to start it takes most of the time."""
    one, two = Current(), Current()
    one.control, two.control = control_of("p1"), control_of("p2")
    async with served(cast("Any", one), LATE) as url, served(cast("Any", two), LATE) as other:
        yield one, url, two, other


@pytest.fixture
async def both(http_of_two: tuple[Current, str, Current, str]) -> AsyncIterator[Two]:
    """The first has partition 0, the second 4, which is live, and 5, which has failed."""
    first, url, second, other = http_of_two
    one, two = control_of("p1", peer("p2", other)), control_of("p2", peer("p1", url))
    one.statuses = {0: LIVE}
    two.statuses = {4: msgspec.structs.replace(LIVE, partition=4), 5: msgspec.structs.replace(FAILED, partition=5)}
    first.control, second.control = one, two
    owners = {(0, "p1"), (4, "p2"), (5, "p2")}
    async with asked(url) as ask, asked(other) as ask_two:
        for client in (ask, ask_two):

            async def has_heard(client: httpx2.AsyncClient = client) -> bool:
                states = [each["state"] for each in await items(client, "/api/v1/processes")]
                rows = {(each["partition"], each["process_id"]) for each in await items(client, "/api/v1/partitions")}
                return states == ["self", "reachable"] and owners <= rows

            await until(has_heard, "each knows what the other one has")
        yield Two(one, two, ask, ask_two)


@asynccontextmanager
async def asked(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=scaled(10)) as client:
        yield client


async def items(client: httpx2.AsyncClient, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get(path)).json()["items"]
    return found


async def ended(both: Two, operation: dict[str, Any], state: str) -> dict[str, Any]:
    """Ask both processes until both say that the operation has ended so."""
    shown: dict[str, Any] = {}
    async with within(30):
        for client in (both.ask, both.ask_two):
            while shown.get("state") != state:  # seldom enough for the rate of what others are asked for
                shown = (await client.get(f"/api/v1/operations/{operation['id']}")).json()
                await asyncio.sleep(0.05)
    return shown


async def test_any_process_answers_for_all(both):
    """Each row says whose it is and how old; of itself alone a process says what it said before."""
    for client in (both.ask, both.ask_two):
        rows = await items(client, "/api/v1/partitions")
        assert [(each["partition"], each["process_id"]) for each in rows] == [
            (0, "p1"),
            *((number, None) for number in (1, 2, 3)),
            (4, "p2"),
            (5, "p2"),
        ]
        assert rows[4]["host"] == "host-p2"
        assert 0 <= rows[4]["age_seconds"] < scaled(5)
        status = (await client.get("/restore-status")).json()
        assert status["summary"]["partitions_by_phase"] == {"live": 2, "failed": 1, "unknown": 3}
        (snapshot,) = await items(client, "/api/v1/snapshots")
        assert snapshot["snapshot_id"] == "77aa"
        assert (await client.get("/api/v1/partitions/4")).json()["process_id"] == "p2"
        assert (await client.get("/api/v1/partitions/3")).json()["phase"] is None
        assert (await client.get("/api/v1/partitions/6")).status_code == 404
        assert (await client.get("/restore-status?scope=unknown")).status_code == 422
    own = await items(both.ask, "/api/v1/partitions?scope=local")
    assert [(each["partition"], each["process_id"]) for each in own] == [(0, "p1")]
    assert (await both.ask.get("/api/v1/partitions/4?scope=local")).status_code == 404


async def test_a_snapshot_of_all_is_one_operation_of_both(both):
    """Each process writes its own; either tells what became of all."""
    begun = await both.ask.post("/trigger-snapshot", json={"reason": "before deploy 42"})
    assert begun.status_code == 202
    operation = begun.json()
    parts = [(part["partition"], part["process_id"], part["state"]) for part in operation["parts"]]
    assert parts == [(0, "p1", "pending"), (4, "p2", "pending")]
    assert (operation["reason"], operation["state"]) == ("before deploy 42", "running")
    assert (await both.ask.get(begun.headers["location"])).json()["state"] == "running"
    both.one.finish(both.one.operations()[0], "succeeded")
    both.two.finish(both.two.operations()[0], "skipped")
    shown = await ended(both, operation, "succeeded")
    assert [part["state"] for part in shown["parts"]] == ["succeeded", "skipped"]
    assert len(await items(both.ask, "/api/v1/operations")) == 2


async def test_what_is_asked_of_a_partition_elsewhere_is_done_there(both):
    """By its owner, which alone has an operation then; its refusal comes back with its own type."""
    adopted = await both.ask.post("/api/v1/partitions/4/adopt", json={"manifest_offset": 42})
    retried = await both.ask.post("/api/v1/partitions/5/retry")
    assert [adopted.status_code, retried.status_code] == [202, 202]
    assert [each.kind for each in both.two.operations()] == ["retry", "adopt"]
    assert both.one.operations() == []
    again = await both.ask.post("/api/v1/partitions/5/retry")
    assert again.status_code == 409
    assert again.json()["type"] == "urn:snapreplay:problem:operation-running"
    assert again.json()["detail"].startswith("process p2 on host-p2: a retry of partition 5")
    assert again.json()["operation_id"] == retried.json()["id"]


async def test_an_operation_of_several_is_cancelled_in_each(both):
    """What has begun in one of them continues. If nothing can be cancelled, the first refusal says why."""
    begun = (await both.ask.post("/trigger-snapshot")).json()
    both.two.finish(both.two.operations()[0], "succeeded")
    cancelled = await both.ask.delete(f"/api/v1/operations/{begun['id']}")
    assert cancelled.status_code == 202
    assert both.one.operations()[0].state == "cancelled"
    shown = await ended(both, begun, "cancelled")
    assert [part["state"] for part in shown["parts"]] == ["cancelled", "succeeded"]
    drill = (await both.ask.post("/api/v1/partitions/4/drill")).json()
    await both.ask.delete(f"/api/v1/operations/{drill['id']}")
    assert both.two.operations()[0].parts[0].detail == "cancelled by somebody at 127.0.0.1"
    pause = (await both.ask.post("/api/v1/partitions/4/pause")).json()
    refused = await both.ask.delete(f"/api/v1/operations/{pause['id']}")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:snapreplay:problem:operation-not-cancellable")


async def test_any_process_may_be_asked_to_drain_another(both):
    """Each shows all drains. A process refuses to be the last one that drains; for an unknown process, the process that
    was asked refuses."""
    drained = await both.ask.post("/api/v1/processes/p2/drain", json={"reason": "a new kernel"})
    assert (drained.status_code, drained.json()["process_id"]) == (202, "p2")
    async with within(30):
        for client in (both.ask, both.ask_two):
            found: dict[str, Any] | None = None
            while not found:
                found = {each["process_id"]: each for each in await items(client, "/api/v1/processes")}["p2"]["drain"]
            assert (found["state"], found["by"], found["reason"]) == (
                "drained",
                "somebody at 127.0.0.1",
                "a new kernel",
            )
    both.one.peers = (msgspec.structs.replace(both.one.peers[0], is_leaving=True),)
    refused = await both.ask_two.post("/api/v1/processes/p1/drain")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:snapreplay:problem:no-successor")
    assert (await both.ask.post("/api/v1/processes/p2/undrain")).status_code == 202
    assert both.two.document().facts.drain is None
    assert (await both.ask.post("/api/v1/processes/p7/drain")).status_code == 404


async def test_a_request_for_one_process_alone_is_not_passed_on(both):
    """So no request goes round."""
    assert (await both.ask.post("/api/v1/partitions/5/retry?scope=local")).status_code == 409
    assert (await both.ask.post("/trigger-snapshot?scope=local", json={"partitions": [4]})).status_code == 409
    begun = await both.ask.post("/trigger-snapshot?scope=local")
    assert [part["partition"] for part in begun.json()["parts"]] == [0]
    assert both.two.operations() == []


async def test_what_is_passed_on_says_that_it_is_for_that_process_alone():
    """The other one asks no further process, even if it believes in another owner; an unreadable answer is reported."""
    asked_for: list[str] = []
    told = events.status(events.members(control_of("p2").document())) + events.ages(Ages(0, 0))

    async def owner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)
        if method == "POST":
            asked_for.append(target)
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + told)
        with suppress(OSError):
            await reader.read()
        writer.close()

    one = control_of("p1")
    one.statuses = {}
    server = await asyncio.start_server(owner, "127.0.0.1", 0)
    async with server, served(one, LATE) as url, asked(url) as ask:
        one.peers = (peer("p2", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"),)

        async def is_reachable() -> bool:
            return [each["state"] for each in await items(ask, "/api/v1/processes")] == ["self", "reachable"]

        await until(is_reachable, "the other one is followed")
        refused = await ask.post("/api/v1/partitions/2/retry")
    assert asked_for == ["/api/v1/partitions/2/retry?scope=local"]
    assert refused.status_code == 503
    assert "its answer cannot be read" in refused.json()["detail"]


async def test_what_begins_in_one_process_only_is_reported(both):
    """The other one refuses after the first has begun: what has begun can be followed."""
    await both.ask_two.post("/trigger-snapshot?scope=local")
    refused = await both.ask.post("/trigger-snapshot", json={"partitions": [0, 4]})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:snapreplay:problem:partly-begun")
    assert "process p2 on host-p2: a snapshot of partition 4 is already running" in refused.json()["detail"]
    (begun,) = both.one.operations()
    assert refused.json()["operation_id"] == begun.id
