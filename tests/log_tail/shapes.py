"""The ends that a log of ours can have. The first ones, with their numbers, are the rows of the table "end − 2" as it
was measured on Kafka 4.3.1; those after them are what makes them the normal case in a crash loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from snapreplay.service.kafka.cluster import KafkaCluster
from tests.log_tail.tail import Tail
from tests.support.kafka import decided

Build = Callable[[Tail], Awaitable[object]]


@dataclass(frozen=True)
class Shape:
    """A log to be built, and what must be true of it before anybody claims it.

    Attributes:
        naive: what seek(end − 2) and a poll give: offsets, or "error".
    """

    build: Build
    last_stable_offset: int
    high_watermark: int
    naive: list[int] | str

    def __str__(self) -> str:
        return self.build.__name__


SHAPES: list[Shape] = []


def shape(
    last_stable_offset: int, high_watermark: int, naive: list[int] | str
) -> Callable[[Build], Build]:
    def add(build: Build) -> Build:
        SHAPES.append(Shape(build, last_stable_offset, high_watermark, naive))
        return build

    return add


# ------------------------------------------------------------------ the rows of the table


@shape(2, 2, [0])
async def one_committed_transaction_of_one_record(tail: Tail) -> None:
    await tail.batch()


@shape(4, 4, [])
async def committed_then_aborted(tail: Tail) -> None:
    await tail.batch()
    await tail.aborted(1, 1)


@shape(17, 17, [])
async def committed_then_five_aborted_of_two(tail: Tail) -> None:
    await tail.batch()
    await tail.aborted(5, 2)


@shape(5, 5, [])
async def committed_then_three_bare_markers(tail: Tail) -> None:
    await tail.batch()
    await tail.bare(3)


@shape(3, 3, [1, 2])
async def three_outside_any_transaction(tail: Tail) -> None:
    for _ in range(3):
        await tail.plain_increment()


@shape(3, 3, [2])
async def committed_then_outside_any_transaction(tail: Tail) -> None:
    await tail.batch()
    # Before its marker is written the next record may take the offset that the shape counts on.
    await decided(KafkaCluster(tail.context.settings), tail.context.increments)
    await tail.plain()


@shape(6, 6, [4])
async def one_transaction_of_five_records(tail: Tail) -> None:
    await tail.batch(changes=4)


@shape(0, 0, "error")
async def empty(tail: Tail) -> None:
    """Nothing was ever written."""


@shape(3, 3, [])
async def only_aborted(tail: Tail) -> None:
    await tail.aborted(1, 2)


@shape(6, 6, "error")
async def trimmed_to_the_end(tail: Tail) -> None:
    await tail.batch(changes=4)
    await tail.trim(6)


@shape(6, 6, "error")
async def trimmed_to_the_marker(tail: Tail) -> None:
    await tail.batch(changes=4)
    await tail.trim(5)


@shape(6, 6, [4])
async def trimmed_into_a_transaction(tail: Tail) -> None:
    await tail.batch(changes=4)
    await tail.trim(2)


# ------------------------------------------------------------------ the list beside it


@shape(8, 8, [])
async def increments_and_aborted_in_turn(tail: Tail) -> None:
    """Several aborted ones between committed ones, and at the end."""
    for _ in range(2):
        await tail.batch()
        await tail.aborted(1, 1)


@shape(9, 9, [7])
async def another_writer_after_ours(tail: Tail) -> None:
    """The last committed transaction is somebody else's."""
    await tail.batch()
    await tail.plain()
    await tail.batch()
    await tail.foreign(3)


@shape(4, 4, [2])
async def another_writer_within_ours(tail: Tail) -> None:
    """Interleaved: a record of somebody else between the changes and their increment."""
    await tail.batch(changes=1, between=b"not ours")


@shape(22, 22, [20, 21])
async def twenty_records_of_others(tail: Tail) -> None:
    await tail.batch()
    for _ in range(20):
        await tail.plain()


@shape(352, 352, [])
async def fifty_aborted_of_six(tail: Tail) -> None:
    """A crash loop without a claim in between."""
    await tail.batch()
    await tail.aborted(50, 6)


@shape(32, 32, [])
async def thirty_bare_markers(tail: Tail) -> None:
    await tail.batch()
    await tail.bare(30)


@shape(96, 96, [])
async def everything_at_once(tail: Tail) -> None:
    """Batches, aborted ones, bare markers, others' records, and the beginning trimmed away."""
    for _ in range(8):
        await tail.batch(changes=2)
        await tail.aborted(2, 2)
        await tail.plain()
    await tail.bare(8)
    await tail.trim(50)
