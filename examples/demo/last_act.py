"""Spark compacts while the service processes and is killed; the owner adopts; a restore begins there.

The last flights arrive during this act. The service is killed twice: as soon as Spark has written the first chunk of a
proposal, and again when the owner has judged the proposals.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from examples.demo.asking import Asking, Json
from examples.demo.failed import DemoFailed
from examples.demo.feeder import Feeder
from examples.demo.names import PARTITIONS
from examples.demo.plan import Kill
from examples.demo.record import Adoption, RunLog
from examples.demo.show import Show
from examples.demo.spark_job import NotFinished, SparkJob
from examples.demo.story import Story
from examples.demo.topics import ANSWER_S, quiet

LONGEST_AFTER_CHUNK_S = 0.2  # Spark has to read the chunks back before it writes a manifest
ADOPTION_S = 30.0
LOOK_S = 0.1


class Proposal(msgspec.Struct):
    """A partition in what `snapreplay compact --output json` prints."""

    partition: int
    outcome: str
    snapshot_id: str = ""
    manifest_offset: int = -1
    reason: str = ""


class Report(msgspec.Struct):
    """The output of `snapreplay compact --output json`, as far as the demo reads it."""

    partitions: list[Proposal]


def compaction(bootstrap_servers: str, app_id: str, work_dir: Path) -> SparkJob:
    """Make the job. It does not wait for the owner, who is killed meanwhile."""
    options = [f"--app-id={app_id}", f"--bootstrap-servers={bootstrap_servers}"]
    return SparkJob("compact", options, work_dir)


@dataclass(frozen=True)
class LastAct:
    """Use once, after the story. What happens is shown by `show` and kept in `run_log`."""

    story: Story
    asking: Asking
    show: Show
    run_log: RunLog
    feeder: Feeder

    def play(self, job: SparkJob, bootstrap_servers: str, snapshots_topic: str) -> None:
        """Play from a fresh snapshot to the last record. A job that fails is a verdict.

        Raises:
            DemoFailed: the service or the cluster failed.
        """
        self.story.snapshot("what Spark starts from")
        self.feeder.start()
        with job, _ends(bootstrap_servers, snapshots_topic) as ends:
            self.show.say("snapreplay compact: Spark starts, and the last flights arrive")
            before = ends()
            while job.runs and ends() == before:
                self.story.look()
                time.sleep(LOOK_S)  # between two looks at the topic
            delay_s = random.Random(self.run_log.seed).uniform(0.0, LONGEST_AFTER_CHUNK_S)
            self.story.strike(Kill(self.story.committed, "Spark compacting", delay_s, "changes"))
            self.run_log.killed_in_time = job.runs
            self.story.come_back(self.run_log.restarts[-1])
            self.run_log.adoptions = self._adopt(self._proposals(job))
        self.story.strike(Kill(self.story.committed, "proposals judged", 0.0, "changes"))
        self.story.come_back(self.run_log.restarts[-1])
        self.run_log.from_adopted = self.run_log.restarts[-1].comeback
        self.feeder.finish()
        self.story.until_committed(self.run_log.records)

    def _proposals(self, job: SparkJob) -> list[Proposal]:
        try:
            said, _ = job.result(self.show.judging)
        except NotFinished as error:
            self.run_log.not_compacted = f"not finished: {error}"
            return []
        return read_report(said)

    def _adopt(self, proposals: list[Proposal]) -> list[Adoption]:
        """Tell the owner of each, as `snapreplay adopt` does; ask the service what its snapshots are then."""
        answers = {each.partition: self._answer(each) for each in proposals}
        document = self.asking.until(self.story.look, lambda _: True, ADOPTION_S, "answer of the owner")
        snapshots = {each["partition"]: each["snapshot"] for each in document["items"]}
        adoptions = [outcome(each, snapshots.get(each.partition), answers[each.partition]) for each in proposals]
        for adoption in adoptions:
            self.show.adopted(adoption)
        self.run_log.snapshots.update(each.snapshot_id for each in adoptions if not each.why)
        return adoptions

    def _answer(self, proposal: Proposal) -> str:
        """Ask the owner; return its answer in words."""
        if proposal.outcome != "proposed":
            return f"{proposal.outcome}: {proposal.reason}"
        path = self.asking.adopt(proposal.partition, proposal.manifest_offset)
        operation = self.asking.ended(path, ADOPTION_S)
        return f"{operation['state']}: " + "; ".join(part["detail"] for part in operation["parts"])


def read_report(said: str) -> list[Proposal]:
    """Return what the command printed, by partition.

    Raises:
        DemoFailed: it printed no report.
    """
    try:
        return msgspec.json.decode(said, type=Report).partitions
    except msgspec.MsgspecError as error:
        raise DemoFailed(f"the compaction printed no report: {error}: {said!r}") from error


def outcome(proposal: Proposal, newest: Json | None, answer: str) -> Adoption:
    """Tell what became of a proposal, by the partition's newest snapshot; `answer` is what the owner said."""
    if (
        newest is None
        or (newest["state"], newest["reason"]) != ("pointed", "adopted")
        or newest["snapshot_id"] != proposal.snapshot_id
    ):
        return Adoption(proposal.partition, why=answer)
    return Adoption(proposal.partition, proposal.snapshot_id, newest["entries"], newest["batch"])


class _Ends:
    """Asks where the partitions of a topic end."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def __call__(self) -> int:
        """Return the sum over all partitions.

        Raises:
            DemoFailed: the cluster did not answer.
        """
        try:
            bounds = [self._consumer.get_watermark_offsets(p, ANSWER_S) for p in self._places]
        except KafkaException as error:
            raise DemoFailed(f"reading the end of {self._places[0].topic}: {error}") from error
        return sum(end for _, end in filter(None, bounds))


@contextmanager
def _ends(bootstrap_servers: str, topic: str) -> Iterator[_Ends]:
    configuration = {"bootstrap.servers": bootstrap_servers, "group.id": "unused"}
    consumer = Consumer(quiet(configuration))
    try:
        yield _Ends(consumer, topic)
    finally:
        consumer.close()
