"""The acts of an operator on a whole cluster: its disk, its leaders, its replicas, its place.

One cluster takes all kinds of app at all moments: they have processed 70 payments when `halfway` comes, and 80 when the
act is carried out.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Self

from confluent_kafka.admin import AdminClient

from snapreplay.devbroker.broker import LocalBroker, LocalCluster
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.properties import Node
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from tests.chaos.reassign import reassign
from tests.operators.ground import DEADLINE_SECONDS, Ground
from tests.support import reference, tampering


class Act:
    """Its cluster, and what is done to it. Closed like a file."""

    name: str
    tool: str

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = ExitStack()
        self.servers = self.begin()

    def begin(self) -> str:
        """Start the cluster; its bootstrap servers."""
        raise NotImplementedError

    def prepared(self, grounds: Sequence[Ground]) -> None:
        """All topics are there, empty."""

    def halfway(self, grounds: Sequence[Ground]) -> None:
        """70 payments are processed."""

    def processed(self, grounds: Sequence[Ground]) -> None:
        """80 payments are processed, all apps run."""

    def carry_out(self, grounds: Sequence[Ground]) -> None:
        """80 payments are processed; some apps are frozen, others are stopped."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()


class DiskFromBackup(Act):
    """Everything is as it was halfway; only the processes that still run know more."""

    name = "restore the broker's disk from a backup"
    tool = "stop the broker; cp -a BACKUP DATA; start the broker"

    def restored(self, grounds: Sequence[Ground]) -> list[str]:
        """The directories that are taken from the backup; "" is all of the disk."""
        return [""]

    def begin(self) -> str:
        self._data, self._backup = self._folder / "data", self._folder / "backup"
        self._broker = self._kept.enter_context(LocalBroker(data_dir=self._data))
        return self._broker.bootstrap_servers

    def halfway(self, grounds: Sequence[Ground]) -> None:
        """Copy the disk as a snapshot of the volume does: all files at one moment."""
        os.kill(self._broker.pid, signal.SIGSTOP)
        try:
            shutil.copytree(self._data, self._backup)
        finally:
            os.kill(self._broker.pid, signal.SIGCONT)

    def carry_out(self, grounds: Sequence[Ground]) -> None:
        self._broker.kill()
        for name in self.restored(grounds):
            shutil.rmtree(self._data / name)
            shutil.copytree(self._backup / name, self._data / name)
        self._broker.restart()


class OlderInputs(DiskFromBackup):
    """Each partition has a directory of its own. What else there is on the disk is of today."""

    name = "restore the input's directory from a backup"
    tool = "stop the broker; cp -a BACKUP/INPUT-0 DATA; start the broker"

    def restored(self, grounds: Sequence[Ground]) -> list[str]:
        return [f"{ground.input}-0" for ground in grounds]


class OlderIncrements(DiskFromBackup):
    """The outputs hold what no increment tells of."""

    name = "restore the increments topic's directory from a backup"
    tool = "stop the broker; cp -a BACKUP/INCREMENTS-0 DATA; start the broker"

    def restored(self, grounds: Sequence[Ground]) -> list[str]:
        return [f"{ground.increments}-0" for ground in grounds]


class OlderSnapshots(DiskFromBackup):
    """The newest increments point to a snapshot that is not there any more."""

    name = "restore the snapshots topic's directory from a backup"
    tool = "stop the broker; cp -a BACKUP/SNAPSHOTS-0 DATA; start the broker"

    def processed(self, grounds: Sequence[Ground]) -> None:
        _snapshots(grounds)

    def restored(self, grounds: Sequence[Ground]) -> list[str]:
        return [f"{ground.snapshots}-0" for ground in grounds]


class Mirror(Act):
    """Another cluster answers at the old address. It has the records in their order; a mirror copies no transaction
    markers, so that offsets differ."""

    name = "switch to a mirror of all topics"
    tool = "kafka-mirror-maker.sh; let the address lead to the other cluster"
    own_topics = True

    def begin(self) -> str:
        port, controller_port = free_ports(2)
        self._node = Node(1, port, controller_port)
        self._old = self._kept.enter_context(LocalCluster(1, nodes=[self._node]))
        return self._old.bootstrap_servers

    def carry_out(self, grounds: Sequence[Ground]) -> None:
        copied = {topic: self._read(topic) for ground in grounds for topic in self._topics(ground)}
        self._old.stop()
        self._kept.enter_context(LocalCluster(1, nodes=[self._node]))
        for ground in grounds:
            for topic in self._topics(ground):
                own = topic in (ground.increments, ground.snapshots)
                tampering.create(self.servers, topic, 1, KEPT_FOR_EVER if own else {})
                tampering.write_again(self.servers, topic, copied[topic])

    def _topics(self, ground: Ground) -> list[str]:
        own = [ground.increments, ground.snapshots] if self.own_topics else []
        return [ground.input, ground.output, *own]

    def _read(self, topic: str) -> list[Any]:
        (records,) = reference.committed(self.servers, topic, 1)
        return tampering.messages(self.servers, topic, len(records))


class MirrorOfInputs(Mirror):
    """The usual set-up: nobody thinks of the own topics."""

    name = "switch to a mirror of the input and the output"
    own_topics = False


class OfThree(Act):
    """Three brokers; every topic of the apps has its copies on `first`, the leader ahead."""

    first = (1, 2)
    config: ClassVar[Mapping[str, str]] = {}

    def begin(self) -> str:
        self._cluster = self._kept.enter_context(LocalCluster(3, deadline_s=120.0, heap_mb=256))
        return self._cluster.bootstrap_servers

    def prepared(self, grounds: Sequence[Ground]) -> None:
        for topic in _all(grounds):
            for name, value in self.config.items():
                tampering.configure(self.servers, topic, name, value)
            self.move(topic, self.first)

    def move(self, topic: str, replicas: Sequence[int]) -> None:
        reassign(self.servers, topic, {0: replicas})
        self.until(topic, lambda at: set(at.isrs) == set(at.replicas) == set(replicas))

    def until(self, topic: str, holds: Any) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            at = admin.list_topics(topic, 10).topics[topic].partitions[0]
            if holds(at):
                return
            assert time.monotonic() < deadline, f"{topic}: {at}"
            time.sleep(0.1)  # between two looks, under the deadline


class Reassign(OfThree):
    """All copies go to other brokers."""

    name = "move all topics to other brokers"
    tool = "kafka-reassign-partitions.sh --execute"

    def carry_out(self, grounds: Sequence[Ground]) -> None:
        for topic in _all(grounds):
            self.move(topic, (3,))


class UncleanElection(OfThree):
    """The follower misses ten payments and all that came of them; then it leads."""

    name = "an unclean leader election for all topics"
    tool = "kafka-leader-election.sh --election-type UNCLEAN"
    config: ClassVar = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}

    def cut(self, grounds: Sequence[Ground]) -> list[str]:
        """The topics that lose records."""
        return _all(grounds)

    def prepared(self, grounds: Sequence[Ground]) -> None:
        super().prepared(grounds)
        for topic in set(_all(grounds)) - set(self.cut(grounds)):
            self.move(topic, (3,))

    def halfway(self, grounds: Sequence[Ground]) -> None:
        self._cluster.node(1).kill()

    def carry_out(self, grounds: Sequence[Ground]) -> None:
        self._cluster.node(0).kill()
        self._cluster.restart_node(1)
        for topic in self.cut(grounds):
            self.until(topic, lambda at: at.leader == 2)
        self._cluster.restart_node(0)


class UncleanElectionOfInputs(UncleanElection):
    """The outputs and the state know of payments that the input has no more."""

    name = "an unclean leader election for the input"

    def cut(self, grounds: Sequence[Ground]) -> list[str]:
        return [ground.input for ground in grounds]


class UncleanElectionOfIncrements(UncleanElection):
    """The outputs hold what no increment tells of."""

    name = "an unclean leader election for the increments topic"

    def cut(self, grounds: Sequence[Ground]) -> list[str]:
        return [ground.increments for ground in grounds]


class UncleanElectionOfSnapshots(UncleanElection):
    """The newest increments point to a snapshot that is not there any more."""

    name = "an unclean leader election for the snapshots topic"

    def processed(self, grounds: Sequence[Ground]) -> None:
        _snapshots(grounds)

    def cut(self, grounds: Sequence[Ground]) -> list[str]:
        return [ground.snapshots for ground in grounds]


def _snapshots(grounds: Sequence[Ground]) -> None:
    """One more of each app that has any."""
    for ground in grounds:
        if ground.kept.snapshot:
            ground.trigger_snapshot()


def _all(grounds: Sequence[Ground]) -> list[str]:
    return [
        topic
        for ground in grounds
        for topic in (ground.input, ground.output, ground.increments, ground.snapshots)
    ]


ACTS: Mapping[str, type[Act]] = {
    each.name: each
    for each in (
        DiskFromBackup,
        Mirror,
        MirrorOfInputs,
        Reassign,
        UncleanElection,
        UncleanElectionOfInputs,
        UncleanElectionOfIncrements,
        UncleanElectionOfSnapshots,
        OlderInputs,
        OlderIncrements,
        OlderSnapshots,
    )
}
