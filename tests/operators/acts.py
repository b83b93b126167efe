"""The acts of an operator on a whole cluster: its disk, its leaders, its replicas, its place.

One cluster takes all kinds of app at all moments: they have processed 70 payments when `halfway` comes, and 80 when the
act is carried out.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Self

from snapreplay.devbroker.broker import LocalBroker, LocalCluster
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.properties import Node
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from tests.operators.ground import Ground
from tests.support import reference, tampering
from tests.support.reassign import move, until_placed


class Act:
    """Its cluster, and what is done to it. Closed like a file.

    Attributes:
        only: the one topic of each app that is hit, as `Ground` calls it; "": all of them.
    """

    name: str
    only = ""

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
        """80 payments are processed, all apps run. Snapshots that are to be hit are not older than that."""
        for ground in grounds if self.only == "snapshots" else ():
            if ground.kept.snapshot:
                ground.trigger_snapshot()

    def hit(self, grounds: Sequence[Ground]) -> list[str]:
        """The topics that are hit."""
        return [getattr(ground, self.only) for ground in grounds] if self.only else _all(grounds)

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
        # Each partition has a directory of its own. What else there is on the disk is of today.
        for name in [f"{topic}-0" for topic in self.hit(grounds)] if self.only else [""]:
            shutil.rmtree(self._data / name)
            shutil.copytree(self._backup / name, self._data / name)
        self._broker.restart()


class OlderInputs(DiskFromBackup):
    """The outputs and the state know of payments that the input has no more."""

    name = "restore the input's directory from a backup"
    only = "input"


class OlderIncrements(DiskFromBackup):
    """The outputs hold what no increment tells of."""

    name = "restore the increments topic's directory from a backup"
    only = "increments"


class OlderSnapshots(DiskFromBackup):
    """The newest increments point to a snapshot that is not there any more."""

    name = "restore the snapshots topic's directory from a backup"
    only = "snapshots"


class Mirror(Act):
    """Another cluster answers at the old address. It has the records in their order; a mirror copies no transaction
    markers, so that offsets differ."""

    name = "switch to a mirror of all topics"
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
            move(self.servers, topic, self.first)


class Reassign(OfThree):
    """All copies go to other brokers."""

    name = "move all topics to other brokers"

    def carry_out(self, grounds: Sequence[Ground]) -> None:
        for topic in _all(grounds):
            move(self.servers, topic, (3,))


class UncleanElection(OfThree):
    """The follower misses ten payments and all that came of them; then it leads."""

    name = "an unclean leader election for all topics"
    config: ClassVar = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}

    def prepared(self, grounds: Sequence[Ground]) -> None:
        super().prepared(grounds)
        for topic in set(_all(grounds)) - set(self.hit(grounds)):
            move(self.servers, topic, (3,))

    def halfway(self, grounds: Sequence[Ground]) -> None:
        self._cluster.node(1).kill()

    def carry_out(self, grounds: Sequence[Ground]) -> None:
        self._cluster.node(0).kill()
        self._cluster.restart_node(1)
        for topic in self.hit(grounds):
            until_placed(self.servers, topic, lambda at: at.leader == 2)
        self._cluster.restart_node(0)


class UncleanElectionOfInputs(UncleanElection):
    """The input loses payments that the outputs and the state know of."""

    name = "an unclean leader election for the input"
    only = "input"


class UncleanElectionOfIncrements(UncleanElection):
    """The increments topic loses what the outputs tell of."""

    name = "an unclean leader election for the increments topic"
    only = "increments"


class UncleanElectionOfSnapshots(UncleanElection):
    """The snapshots topic loses what the newest increments point to."""

    name = "an unclean leader election for the snapshots topic"
    only = "snapshots"


def _all(grounds: Sequence[Ground]) -> list[str]:
    return [topic for ground in grounds for topic in (ground.input, ground.output, ground.increments, ground.snapshots)]


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
