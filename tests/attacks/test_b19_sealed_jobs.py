"""Attack B19, continued: what a job takes from a log with a seal, and what it writes into it."""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from snapreplay.service.clock import wall_ms
from snapreplay.snapshots.format.seal import SealPolicy, SealRefused, Seals
from snapreplay.snapshots.jobs.compaction import Compaction, Outcome
from snapreplay.snapshots.jobs.fixed_logs import PartitionLogs, moment_of
from snapreplay.snapshots.proof.partition import audit_partition
from snapreplay.snapshots.proof.report import Level
from tests.support.audited_topics import MemoryTopics
from tests.support.compacting import BY, PlainEngine, Topics
from tests.support.proposals import Job, answer, asked, fed, forged_increment, key_file, ran, sealed, seals

__all__ = ["key_file"]


class KeyedTopics(Topics):
    def __init__(self, bench, keys):
        super().__init__(MemoryTopics(bench.broker.logs))
        self.keys, self.ids = keys, dict(bench.broker.topic_ids)

    @contextmanager
    def open(self):
        with super().open() as client:
            client.seals = self.keys
            yield client


def audited(bench, keys):
    """Checks of all findings."""
    with KeyedTopics(bench, keys).open() as client:
        logs = PartitionLogs(client, bench.app.app_id, 0)
        moment = moment_of(client, bench.app.app_id, 0)
        report = audit_partition(bench.app.app_id, moment, logs, Level.CHANGES)
    return {each.check for each in report.findings}


def compacted(bench, keys):
    topics = KeyedTopics(bench, keys)
    (result,) = Compaction(PlainEngine().for_each, topics.open, bench.app.app_id, BY, wall_ms).run()
    return result


async def test_an_audit_looks_at_every_seal(bench, key_file):
    """With the key all is well; with another one, or a forged record, the finding says so. Without one it does not
    run."""
    await bench.prepare(**key_file("a"))
    await ran(bench)
    assert audited(bench, seals("a")) == set()
    assert audited(bench, None) == set()
    assert audited(bench, seals("b")) == {"seal"}
    with pytest.raises(SealRefused, match="this process has no key"):
        audited(bench, Seals())
    Job(bench).propose()
    assert audited(bench, seals("a")) == {"seal"}


async def test_a_compaction_seals_what_it_proposes(bench, key_file):
    """The owner adopts it. A job with another key proposes nothing."""
    await bench.prepare(**key_file("a"))
    async with bench.live() as one:
        await fed(bench, one)
        refused = compacted(bench, seals("b"))
        assert refused.outcome is Outcome.NOT_POSSIBLE
        assert "is sealed with key 'a', but the file has only b" in refused.reason
        proposed = compacted(bench, seals("a"))
        assert proposed.outcome is Outcome.PROPOSED, proposed
        told = await answer(asked(one, proposed.manifest_offset))
        assert told[0] == "succeeded", told
    assert all(sealed(bench))
    assert (await bench.restored()).snapshot.snapshot_id == proposed.snapshot_id


async def test_a_compaction_takes_nothing_from_a_forged_log(bench, key_file):
    """An increment without a seal behind the last one."""
    await bench.prepare(**key_file("a"))
    async with bench.live() as one:
        await fed(bench, one)
    forged_increment(bench)
    result = compacted(bench, seals("a"))
    assert result.outcome is Outcome.NOT_POSSIBLE
    assert "has no seal" in result.reason


async def test_an_audit_refuses_what_follows_a_sealed_increment_without_a_seal(bench, key_file):
    """While the seal is introduced, the order is all that shows it: what began without a seal is no finding."""
    introducing = replace(seals("a"), policy=SealPolicy.INTRODUCE)
    await ran(bench)
    await ran(bench, **key_file("a", policy="introduce"))
    assert set(sealed(bench)) == {True, False}
    assert audited(bench, introducing) == set()
    forged_increment(bench)
    assert audited(bench, introducing) == {"seal"}
    assert "the increment before it has one" in compacted(bench, introducing).reason
