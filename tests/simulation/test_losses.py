"""Histories in which brokers lose the end of a log: what is left is gone on with exactly, or refused."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from snapreplay.service.ports import TopicPartition
from tests.simulation.log import Log, Transaction, TxnState
from tests.simulation.losing import OWNERS, Loss, Owners, Part
from tests.simulation.oracle import meant
from tests.simulation.run import kept, run_seed
from tests.simulation.test_regressions import QUIET, Script, play

KINDS: tuple[dict[str, Any], ...] = ({}, {"calls": True}, {"rekeys": True})
TELLING = (33,)
"""Catches the mutant inputs-are-not-compared."""


@pytest.mark.parametrize(
    ("seeds", "also"),
    [
        *((range(6), also) for also in KINDS),
        (TELLING, {"rekeys": True}),
        *(pytest.param(range(6, 12), also, marks=pytest.mark.whole) for also in KINDS),
        pytest.param(range(12, 50), {}, marks=pytest.mark.whole),
    ],
    ids=str,
)
def test_no_loss_ends_silently(seeds: Sequence[int], also: Any) -> None:
    """Of any topic, also of Kafka's own and of internal ones, with the owners running, frozen, cut off and stopped."""
    kept(seeds, losses=True, **also)


def lost(part: Part, owners: Owners, back: int, others: int) -> Loss:
    """Make a loss after two of four seconds, by an unclean election."""
    return Loss(2.0, "election", (part,), owners, back, 0.0, others, 0.05)


@pytest.mark.parametrize("owners", OWNERS[1:])
@pytest.mark.parametrize("back", [1, 3, 8])
def test_an_input_that_has_lost_processed_records_is_refused(owners: Owners, back: int) -> None:
    """Also when it has grown beyond the position again, with any records there now."""
    loss = lost("input", owners, back, others=12)
    script = Script({"end": {}}, replace(QUIET, ahead_records=10))
    world = script.world

    def happen() -> None:
        world.losses.begin(loss)
        world.loop.call_later(loss.pause_seconds, script.resume)

    world.loop.call_later(loss.at, script.when_processed, happen)
    assert script.run() is None
    assert world.losses.parts[0] == {"input"}
    assert world.refused == {0}


def as_of_its_first_second(owners: Owners) -> Loss:
    """The increments' directory is as old as the genesis: nothing of any owner is left in it."""
    return Loss(2.0, "directory", ("increments",), owners, 0, 0.99, 0, 0.05)


@pytest.mark.parametrize(
    "loss",
    [*(lost("increments", "running", back, others=0) for back in (1, 2, 6)), as_of_its_first_second("running")],
    ids=str,
)
def test_an_owner_writes_what_its_log_has_lost(loss: Loss) -> None:
    """The increments are lost, and nothing of the state is: there is no snapshot that would lead to it."""
    problem, _, world = play(replace(QUIET, every_records=0, losses=(loss,)), {"end": {}})
    assert problem is None
    assert world.losses.parts[0] == {"increments"}
    assert not world.refused
    assert not world.network.faults.counts["increments were lost without a trace"]


@pytest.mark.parametrize("seed", [9028, 9138])
def test_no_state_is_written_over_that_of_a_later_owner(seed: int) -> None:
    """The ends of the increments and of `__transaction_state` are lost: neither an offset nor a fence tells of it."""
    assert run_seed(seed, losses=True).problem is None


def test_a_lost_batch_whose_input_is_trimmed_meanwhile_is_refused() -> None:
    """The next record to process is gone with the batch that had processed it."""
    assert run_seed(435, losses=True, decisions=True).problem is None


def test_a_lost_end_that_has_left_a_trace_is_refused() -> None:
    """No process has the state in memory; snapshots and the witness tell of later batches."""
    loss = as_of_its_first_second("stopped")
    problem, _, world = play(replace(QUIET, losses=(loss,)), {"end": {}})
    assert problem is None
    assert world.refused == {0}


def test_a_record_where_a_lost_marker_was_is_none_that_was_processed() -> None:
    """Nothing but the marker is lost: a batch that passed it before has no record there, with any records since."""
    log = Log(TopicPartition("input", 0))
    log.append(b"key", b"1", (), 1, None)
    log.mark(Transaction("another program", 0, 0.0, TxnState.COMMITTED))
    log.cut(1)
    log.append(b"key", b"2", (), 2, None)
    passed, processed = 2, 3  # serials of increments: before the loss, and after it
    assert meant(log, 1, None, passed, is_skipped=False) is None
    assert meant(log, 1, 2, processed, is_skipped=False) == log.records[1]
