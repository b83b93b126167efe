"""An owner of which nothing is heard over HTTP for a while: it is frozen, or only its connections are cut. Each process
suspects the other one by itself, and the checker judges what the log has at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from functools import partial
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.processes import Place, Process, Slot
from tests.chaos.timeline import Timeline
from tests.chaos.watch import Watch
from tests.checker import app, verify
from tests.checker.load import Load, send
from tests.checker.reading import Logs
from tests.support.deadlines import scaled
from tests.support.stage import Stage
from tests.support.waiting import eventually
from tests.support.wire import HOST, Streams, Way, Wire, loop_of_wires

DEADLINE_S = 60.0
PART = 65536
LIVED = "; but it was given a partition of this process since, so it lived"
COMMITTED = "; but it has committed since"


class Cable(Wire):
    """A wire that carries any protocol, such as HTTP."""

    async def _next(self, source: Streams, way: Way) -> bytes:
        part = await source[0].read(PART)
        await self._whole(way)
        return part


class Pair:
    """Two processes of the checker's app with one partition: its owner, and one that would be its successor."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._slots = [Slot(name, place) for name in ("one", "two")]
        self.watch = Watch(self._slots, place.timeline)
        self.copies_wanted = 0
        self.epoch = -1
        """The owner epoch of the partition where it was LIVE last."""

    @property
    def owner(self) -> Process:
        return self._slots[0].process

    @property
    def other(self) -> Process:
        return self._slots[1].process

    def start(self, copies: int, cables: Sequence[Cable] = ()) -> None:
        """Start both; wait until they hear each other, through the cables if there are some, and the copies are
        warm."""
        self.copies_wanted = copies
        settings: dict[str, Any] = {"standby__replicas": copies}
        # The defaults, and longer on a busy machine: but shorter than a commit may take, and than 90 s. The owner is
        # more patient: it suspects the other one only after that has taken over from it.
        patience_ms = int(min(scaled(3), 8) * 1000)
        settings["group__session_timeout_ms"] = int(min(scaled(10), 45) * 1000)
        for slot, cable in zip_longest(self._slots, cables):
            settings["http__advertised_url"] = f"http://{HOST}:{cable.port}" if cable else ""
            settings["http__suspect_after_ms"] = patience_ms + 2000 * (slot is self._slots[0])
            slot.start(**settings)
            eventually(lambda: self.live(self.owner) is not None, "the first one is LIVE", DEADLINE_S)
            eventually(partial(slot.process.get, "/healthz"), "HTTP", DEADLINE_S)
            if cable:
                cable.target = (HOST, int(slot.process.url.rpartition(":")[2]))
        eventually(lambda: self.hears(self.other, "reachable"), "the owner is heard", DEADLINE_S)
        eventually(lambda: self.hears(self.owner, "reachable"), "the owner hears", DEADLINE_S)
        eventually(lambda: len(self.copies(self.other)) == copies, "warm copies", DEADLINE_S)
        self.epoch = self.live(self.owner) or self.epoch

    def stop(self) -> None:
        """All rules hold, one process owns the partition, and both end in good order."""
        urls = [slot.process.url for slot in self._slots]
        place = self._place
        judged = verify(
            place.bootstrap_servers, place.app_id, outcomes=place.outcomes, urls=urls, deadline_seconds=DEADLINE_S
        )
        assert judged.good, str(judged)
        assert judged.counts["input records"] > 0
        assert judged.counts["copies checked"] > 0 or self.copies_wanted == 0
        self.note("judged")
        for slot in self._slots:
            slot.stop()
        assert place.timeline.problems == []

    @property
    def batch(self) -> int:
        """The last batch that the owner has committed."""
        status = self.owner.get("/api/v1/partitions?scope=local") or {"items": []}
        return max((each["batch"] for each in status["items"]), default=-1)

    def live(self, process: Process) -> int | None:
        """The owner epoch of the partition, if it is LIVE there."""
        status = process.get("/restore-status?scope=local") or {"partitions": []}
        return next((each["owner_epoch"] for each in status["partitions"] if each["phase"] == "live"), None)

    def copies(self, process: Process) -> list[int]:
        """The batches of the warm copies there."""
        status = process.get("/restore-status?scope=local") or {"standbys": []}
        return [each["batch"] for each in status["standbys"] if each["state"] == "warm"]

    def hears(self, process: Process, state: str) -> bool:
        """Whether the other process is in this state, by what this one hears."""
        answer = process.get("/api/v1/processes") or {"items": []}
        return [each["state"] for each in answer["items"]] == ["self", state]

    def send(self) -> None:
        """Send a few records."""
        send(self._place.bootstrap_servers, self._place.app_id, 1, seed=2, count=100)

    def longest_pause_s(self, since: float) -> float:
        """The longest time between two outputs since then, by the wall clock."""
        with closing(Logs(self._place.bootstrap_servers)) as logs:
            topic = f"accounts-{self._place.app_id}"
            bounds = logs.bounds(topic, 0)
            times = [each.timestamp_ms / 1000 for each in logs.read(topic, 0, bounds.start, bounds.stable)]
        return max(later - earlier for earlier, later in pairwise([since, *(at for at in times if at > since)]))

    def note(self, what: str) -> None:
        """Say when it was, for whoever wants to know how long it took."""
        self._place.timeline.note("run", what)

    @contextmanager
    def frozen(self, seconds: float) -> Iterator[None]:
        """Stop the owner for so long, or for longer if the block takes longer."""
        self.owner.freeze()
        self.note("frozen")
        with hold(seconds):
            yield
        self.owner.thaw()
        self.note("thawed")

    def told(self) -> tuple[int, int]:
        """Count takeovers, and false alarms."""
        for process in (self.owner, self.other):
            self.watch.listen(process)
        return self.watch.told["takeovers"], self.watch.told["false alarms"]

    def goes_on(self) -> None:
        """The owner is the one that it was, by the same claim, and commits; nobody has taken over."""
        before = self.batch
        eventually(lambda: self.batch > before + 1, "the owner commits")
        eventually(lambda: self.live(self.owner) == self.epoch, "the owner is LIVE by its first claim")
        assert (self.live(self.other), self.told()) == (None, (0, 0))

    def is_taken_over(self) -> None:
        """The other one has the partition, and will keep it."""
        eventually(lambda: self.live(self.other) is not None, "taken over", DEADLINE_S)
        self.epoch = self.live(self.other) or self.epoch
        self.note("taken over")

    def stands_back(self, alarms: int) -> None:
        """There is no second takeover: the former owner holds a copy now."""
        eventually(lambda: len(self.copies(self.owner)) == 1, "the former owner has a warm copy", DEADLINE_S)
        self.note("the former owner has a warm copy")
        assert (self.live(self.owner), self.live(self.other)) == (None, self.epoch)
        eventually(lambda: self.told() == (1, alarms), f"one takeover, {alarms} false alarms")


@contextmanager
def hold(seconds: float) -> Iterator[None]:
    """Let what is done to a process last for so long, or longer if the block does."""
    until = time.monotonic() + seconds
    yield
    time.sleep(max(0.0, until - time.monotonic()))


@pytest.fixture
def pair(broker: Any, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Pair]:
    app_id = unique("silent")
    asyncio.run(Stage(broker.bootstrap_servers, app.make(app_id)).prepare())
    made = Pair(Place(broker.bootstrap_servers, app_id, {}, tmp_path, Timeline(print)))
    try:
        yield made
    finally:
        for slot in made._slots:
            slot.end_all()


@pytest.fixture
def load(pair: Pair) -> Load:
    return Load(pair._place.bootstrap_servers, pair._place.app_id, 1, seed=1, rate=20)


@pytest.mark.whole
def test_an_owner_is_taken_over_from_if_it_is_frozen_for_five_seconds_not_for_one(pair: Pair, load: Load) -> None:
    """One is shorter than anybody waits: it goes on by the same claim. After five it seems to be dead, and the group
    still takes it for a member when it wakes up: a false alarm. What it had begun is never visible."""
    with load:
        pair.start(copies=1)
        with pair.frozen(1):
            pass
        pair.goes_on()
        with pair.frozen(5):
            pair.is_taken_over()
        pair.stands_back(alarms=1)
    pair.stop()


@pytest.mark.whole
def test_an_owner_that_is_frozen_for_five_seconds_is_waited_for_without_a_copy(pair: Pair, load: Load) -> None:
    """It seems to be dead, but nobody could do more than its session timeout does. It goes on by the same claim."""
    with load:
        pair.start(copies=0)
        with pair.frozen(5):
            eventually(lambda: pair.hears(pair.other, "dead"), "it seems to be dead")
        pair.goes_on()
    pair.stop()


class Cables:
    """The ways to the HTTP of two processes."""

    def __init__(self, run: Callable[[Any], Any]) -> None:
        self._run, self.open = run, AsyncExitStack()
        self.both = [Cable((HOST, 0)), Cable((HOST, 0))]
        for each in self.both:
            run(self.open.enter_async_context(each.listening()))

    def cut_for_ten_seconds(self, pair: Pair) -> None:
        """Cut both, until each process seems to be dead to the other one, and for ten seconds; then both hear each
        other again."""
        for each in self.both:
            self._run(each.cut())
        with hold(10):
            for process in (pair.owner, pair.other):
                eventually(partial(pair.hears, process, "dead"), "the other one seems to be dead")
        for each in self.both:
            self._run(each.heal())
        for process in (pair.owner, pair.other):
            eventually(partial(pair.hears, process, "reachable"), "it is heard again")


@pytest.fixture
def cables() -> Iterator[Cables]:
    with loop_of_wires() as run:
        made = Cables(run)
        yield made
        run(made.open.aclose())


@pytest.mark.whole
def test_a_cut_connection_moves_nothing_while_the_owner_commits(pair: Pair, load: Load, cables: Cables) -> None:
    """Its commits are a sign of life. Where the machine is so busy that it does not commit for a second, it may be
    taken for dead."""
    with load:
        pair.start(1, cables.both)
        began = time.time()
        cables.cut_for_ten_seconds(pair)
        eventually(lambda: COMMITTED in pair.other.log_path.read_text() or pair.told()[0], "a sign of life, or none")
        if pair.told()[0] == 0:
            pair.goes_on()
        else:
            assert pair.longest_pause_s(began) > 1
            pair.is_taken_over()
            pair.stands_back(alarms=1)
    pair.stop()


@pytest.mark.whole
def test_a_cut_connection_to_an_idle_owner_costs_one_takeover(pair: Pair, cables: Cables) -> None:
    """Nothing says that it lives. It is fenced, the group confirms the other one, and there is no second takeover: it
    does not hear the other one either, but that one lived when it took over."""
    pair.send()
    pair.start(1, cables.both)
    cables.cut_for_ten_seconds(pair)
    pair.is_taken_over()
    pair.stands_back(alarms=1)
    assert LIVED in pair.owner.log_path.read_text()
    pair.send()
    pair.stop()
