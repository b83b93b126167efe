"""The whole judgement, partition by partition."""

import itertools
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.checker.healing import last_increment, wait_healed
from tests.checker.honesty import Told, read_journals
from tests.checker.partition import PartitionJudge
from tests.checker.reading import LogMoved, Logs, Names
from tests.checker.verdict import Check, Verdict
from tests.checker.wire import Sums

TRIES = 5
"""A running owner may trim what is being read: that partition is judged again."""


def verify(
    bootstrap_servers: str,
    app_id: str,
    *,
    outcomes: Path | None = None,
    deadline_seconds: float,
    urls: Sequence[str] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    healed: bool = True,
) -> Verdict:
    """Judge everything the app has written. Call it when the load has ended.

    Waits until no transaction is open and the input is covered, for as long as the deadline allows; that it does not
    come to that is a violation of "healed". Then reads each partition once, up to where it ended then.

    Args:
        outcomes: a file or folder of journals that `tests.checker.outcomes` wrote; None: rule 6 and the restores'
            part of rule 5 are not checked. A T-ZengLiang that was deleted takes its journal with it.
        deadline_seconds: for the healing. A read fails when it does not move for a minute, for any value.
        urls: of all running processes ("http://host:port"): exactly one must be LIVE in each partition.
        inputs, outputs: topics; by default those of the genesis, and the one other topic that ends in the app id.
        healed: False: the app is not to come to rest (its processes are gone), rule 9 is not checked.

    Raises:
        ValueError: the app's topics are not there.
        Stalled: a read did not move.
    """
    verdict = Verdict()
    if outcomes is None:
        verdict.unchecked.append("outcomes and restores: no journal was given")
    with closing(Logs(bootstrap_servers)) as logs:
        names = _names(logs, app_id, inputs, outputs)
        if healed:
            wait_healed(logs, names, urls, deadline_seconds, verdict)
        told = read_journals(outcomes, verdict)  # last: all processes have come back and written by now
        sent: dict[int, Sums | None] = {}
        for partition in range(names.partitions):
            part, sent[partition] = _partition(logs, names, partition, told.get(partition, Told()))
            _merge(verdict, part)
        if names.hops in names.inputs:
            _judge_hops(logs, names, sent, verdict)
    return verdict


def _partition(logs: Logs, names: Names, partition: int, told: Told) -> tuple[Verdict, Sums | None]:
    for tried in itertools.count(1):
        try:
            judge = PartitionJudge(logs, names, partition, told)
            judge.judge()
        except LogMoved:
            if tried == TRIES:
                raise
        else:
            return judge.verdict, judge.sent
        finally:
            logs.end_reads()
    raise AssertionError("not reached")


def _judge_hops(logs: Logs, names: Names, sent: dict[int, Sums | None], verdict: Verdict) -> None:
    """Compare the internal topic with what the partitions have sent to it: nothing is lost, twice or foreign."""
    seen = {number: Sums() for number in sent}
    for target in range(names.partitions):
        bounds = logs.bounds(names.hops, target)
        if bounds.start > 0:
            verdict.unchecked.append(f"{names.hops}-{target} was trimmed: what was sent to it")
            return
        for record in logs.read(names.hops, target, 0, bounds.stable):
            try:
                source = int(json.loads(record.value or b"")["id"].rsplit("-", 2)[1])
                seen[source].put(record.key or b"", record.value or b"")
            except (ValueError, LookupError, TypeError) as error:
                what = f"no partition of this app has sent it: {error!r}"
                verdict.add(Check.EXACTLY_ONCE, f"{names.hops}-{target}-{record.offset}", what)
    for number, expected in sent.items():
        if expected is None:
            verdict.unchecked.append(f"{names.increments}-{number}: what it has sent to {names.hops}")
        elif expected.digest != seen[number].digest:
            what = f"it has sent {expected.digest} to {names.hops}, there is {seen[number].digest}"
            verdict.add(Check.EXACTLY_ONCE, f"{names.increments}-{number}", what)
        else:
            verdict.counts["internal records checked"] += expected.count


def _merge(verdict: Verdict, part: Verdict) -> None:
    verdict.violations += part.violations
    verdict.totals += part.totals
    verdict.counts += part.counts
    verdict.unchecked += part.unchecked


def _names(logs: Logs, app_id: str, inputs: Sequence[str], outputs: Sequence[str]) -> Names:
    topics = logs.topics()
    increments = f"{app_id}-increments"
    if increments not in topics:
        raise ValueError(f"there is no topic {increments}: is {app_id!r} the app id?")
    partitions = topics[increments]
    known = tuple(inputs) or _inputs(logs, increments, partitions)
    found = tuple(outputs) or tuple(name for name in topics if name.endswith(f"-{app_id}") and name not in known)
    if len(found) != 1:
        raise ValueError(f"{app_id} has the outputs {found}: name one, --outputs TOPIC")
    return Names(app_id, known, found[0], partitions)


def _inputs(logs: Logs, increments: str, partitions: int) -> tuple[str, ...]:
    for partition in range(partitions):
        last = last_increment(logs, increments, partition)
        if last is not None:
            return tuple(last.positions)
    raise ValueError(f"{increments} holds no increment: name the inputs, --inputs TOPIC")
