"""One partition's runner as the supervisor has it, without a group."""

import asyncio
from typing import Any

from snapreplay.service.control.operations import OnDone
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.kafka_errors import CommitInDoubt, Unreachable
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.runtime.context import Context
from tests.support import inside, reference
from tests.support.deadlines import scaled
from tests.support.stage import until


def ends(told: list[Any]) -> OnDone:
    """Note how parts of operations end, not when they begin."""
    return lambda state, *news: None if state == "running" else told.append((state, *news))


async def unreachable(*_: object, **__: object) -> Any:
    """Raise, in place of what asks a broker."""
    raise Unreachable("no broker")


class Hang:
    """A call that never returns; `called` is set once it is made."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def __call__(self, *_: object) -> Any:
        self.called.set()
        await asyncio.Event().wait()


class Owner:
    """Runs until `end`. `here` is a `Stage` or `InMemory`; `phases` are those its status went through; `runner` is Any:
    tests look inside."""

    def __init__(self, here: Any, context: Context) -> None:
        self.here, self.context, self.board = here, context, StatusBoard()
        self.failures: list[BaseException] = []
        self.phases: list[str] = []
        self.board.subscribe(lambda status: self.phases.append(status.phase.value))
        self.runner: Any = PartitionRunner(context, self.board, self.failures.append)
        self.task = asyncio.create_task(self.runner.run())

    @property
    def status(self) -> Any:
        return self.board.get(0)

    @property
    def live(self) -> Any:
        return inside.live(self.runner)

    @property
    def committer(self) -> Any:
        return inside.committer(self.runner)

    @property
    def producer(self) -> Any:
        return inside.producer(self.runner)

    async def phase(self, name: str) -> Any:
        await until(lambda: self.status.phase == name, name)
        return self.status

    async def feed(self, count: int, **extra: Any) -> None:
        """Send so many payments more, and wait until they are processed."""
        await self.here.feed(count, **extra)
        await self.position(self.here.sent)

    async def position(self, offset: int, topic: str = "") -> None:
        """Wait until the first input, or `topic`, is committed up to there."""

        def there() -> bool:
            found = [each for each in self.status.inputs or () if topic in ("", each.topic)]
            return bool(found) and found[0].position >= offset

        await until(there, offset)

    async def pointed(self, reason: str, unlike: str | None = None) -> None:
        """Wait until a snapshot that was taken for this reason, another one than `unlike`, is pointed to."""

        def there() -> bool:
            taken = self.status.snapshot
            is_new = taken is not None and taken.snapshot_id != unlike
            return is_new and (taken.reason, taken.state) == (reason, "pointed")

        await until(there, f"a snapshot ({reason})", 100.0)

    async def again_live(self, epoch: int) -> Any:
        """Wait until a later incarnation than that of this owner epoch is LIVE; its restore status."""
        await until(lambda: self.status.owner_epoch > epoch, "another incarnation")
        return (await self.phase("live")).restore

    def loses_answers(self) -> None:
        """Nothing that this incarnation commits arrives or is answered any more."""

        async def never(*_: object) -> None:
            raise CommitInDoubt("the answer was lost")

        self.producer.commit = never

    async def watch_end(self) -> None:
        """Show it each second where its log ends, and the topics there are, as a supervisor does."""
        reader, loop = await self.context.cluster.reader(), asyncio.get_running_loop()
        while not self.task.done():
            await asyncio.sleep(1.0)
            self.runner.topics_seen(dict(self.here.broker.topic_ids))
            if self.runner.is_quiet:
                asked_at, log = loop.time(), self.runner.increments
                self.runner.end_seen((await reader.end_offsets([log])).get(log), asked_at)

    async def end(self) -> None:
        self.runner.stop(last_snapshot=False)
        await asyncio.wait_for(self.task, scaled(20))

    async def outputs(self) -> list[str]:
        """Ids of the input records that the committed outputs name, in order."""
        return reference.ids((await self.here.read(self.here.output))[0])

    def view(self) -> dict[Any, Any]:
        return reference.as_plain(self.runner.store.committed_view())

    async def snapshot(self) -> str:
        """Ask for a full snapshot and wait until it is pointed to; its id."""
        told: list[Any] = []
        assert self.runner.request_snapshot("test", ends(told))
        await until(lambda: told, "a snapshot")
        assert told[0][0] == "succeeded", told
        return str(told[0][1])
