"""Small scripted histories, told through the ports. Each runs in memory and on a real broker: see
`test_against_broker`.

`stage.look()` notes everything that a reader can observe at that moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol


class Open(Protocol):
    """A transaction that was begun, and not ended by its owner's commit call."""

    async def write(self, count: int) -> None: ...

    async def end(self, *, commit: bool) -> str:
        """ "ok", or the class of the error."""


class Stage(Protocol):
    """One topic with one partition."""

    async def commit(self, name: str, count: int) -> None:
        """A new producer of this transactional id commits `count` records."""

    async def begin(self, name: str) -> Open:
        """A new producer of this id joins the partition in a transaction of its own, and writes nothing yet."""

    async def fence(self, name: str) -> None: ...

    async def append(self, count: int) -> None:
        """Outside of any transaction."""

    async def keep(self, name: str) -> Any:
        """A started `ports.Producer` for `use`."""

    async def use(self, producer: Any, count: int) -> None:
        """Commit on it; the offsets, or the class of the error, are noted."""

    async def delete(self, before_offset: int) -> None:
        """DeleteRecords; the new start, or the class of the error, is noted."""

    async def decided(self) -> None:
        """Until no transaction is open: the last one has outlived its timeout."""

    async def look(self) -> None: ...


async def committed(stage: Stage) -> None:
    await stage.commit("one", 3)
    await stage.look()
    await stage.commit("one", 1)
    await stage.look()


async def plain_between_transactions(stage: Stage) -> None:
    await stage.append(2)
    await stage.commit("one", 1)
    await stage.append(1)
    await stage.look()


async def aborted(stage: Stage) -> None:
    await stage.commit("one", 2)
    transaction = await stage.begin("one")
    await transaction.write(3)
    await transaction.end(commit=False)
    await stage.look()


async def fenced_with_an_open_transaction(stage: Stage) -> None:
    await stage.commit("one", 1)
    transaction = await stage.begin("one")
    await transaction.write(2)
    await stage.look()
    await stage.fence("one")
    await stage.look()
    await transaction.end(commit=True)
    await stage.look()


async def bare_markers(stage: Stage) -> None:
    await stage.commit("one", 1)
    for _ in range(3):
        transaction = await stage.begin("one")
        await transaction.end(commit=False)
    await stage.look()


async def bare_marker_by_a_fence(stage: Stage) -> None:
    await stage.commit("one", 1)
    await stage.begin("one")
    await stage.commit("one", 1)
    await stage.look()


async def foreign_open_transaction(stage: Stage) -> None:
    foreign = await stage.begin("foreign")
    await foreign.write(1)
    await stage.commit("one", 2)
    await stage.append(1)
    await stage.look()
    await foreign.end(commit=True)
    await stage.look()


async def foreign_transaction_aborted_behind_a_commit(stage: Stage) -> None:
    await stage.commit("one", 1)
    foreign = await stage.begin("foreign")
    await foreign.write(2)
    await stage.commit("one", 1)
    await stage.look()
    await foreign.end(commit=False)
    await stage.look()


async def two_open_transactions(stage: Stage) -> None:
    first, second = await stage.begin("first"), await stage.begin("second")
    await second.write(1)
    await first.write(1)
    await second.end(commit=True)
    await stage.look()
    await first.end(commit=True)
    await stage.look()


async def joined_and_empty_does_not_pin(stage: Stage) -> None:
    await stage.begin("foreign")
    await stage.commit("one", 1)
    await stage.look()


async def zombie_commits(stage: Stage) -> None:
    zombie = await stage.keep("one")
    await stage.use(zombie, 1)
    await stage.commit("one", 1)
    await stage.use(zombie, 1)
    await stage.use(zombie, 1)
    await stage.look()


async def two_commits_of_one_producer(stage: Stage) -> None:
    producer = await stage.keep("one")
    await stage.use(producer, 2)
    await stage.use(producer, 3)
    await stage.look()


async def deleted_up_to_a_record(stage: Stage) -> None:
    await stage.commit("one", 4)
    await stage.commit("one", 2)
    await stage.delete(5)
    await stage.look()


async def deleted_into_a_transaction(stage: Stage) -> None:
    await stage.commit("one", 4)
    await stage.delete(2)
    await stage.look()
    await stage.delete(1)
    await stage.look()


async def deleted_into_an_aborted_transaction(stage: Stage) -> None:
    transaction = await stage.begin("one")
    await transaction.write(4)
    await transaction.end(commit=False)
    await stage.commit("one", 1)
    await stage.delete(2)
    await stage.look()


async def deleted_completely(stage: Stage) -> None:
    await stage.commit("one", 2)
    await stage.delete(3)
    await stage.look()
    await stage.delete(9)
    await stage.look()
    await stage.commit("one", 1)
    await stage.look()


async def timed_out(stage: Stage) -> None:
    transaction = await stage.begin("one")
    await transaction.write(1)
    await stage.decided()
    await transaction.end(commit=True)
    await stage.look()


HISTORIES: tuple[Callable[[Stage], Awaitable[None]], ...] = (
    committed,
    plain_between_transactions,
    aborted,
    fenced_with_an_open_transaction,
    bare_markers,
    bare_marker_by_a_fence,
    foreign_open_transaction,
    foreign_transaction_aborted_behind_a_commit,
    two_open_transactions,
    joined_and_empty_does_not_pin,
    zombie_commits,
    two_commits_of_one_producer,
    deleted_up_to_a_record,
    deleted_into_a_transaction,
    deleted_into_an_aborted_transaction,
    deleted_completely,
    timed_out,
)
