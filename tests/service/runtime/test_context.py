"""Tests of what everything about one partition knows."""

import asyncio
import os
import socket

from snapreplay.service.config.settings import Settings
from snapreplay.service.ports import TopicPartition
from snapreplay.service.runtime.context import ClusterView, Context, Identity
from tests.support import apps


def context(identity=None):
    return Context(
        apps.pair("ledger", version="1.4"),
        Settings(),
        None,  # type: ignore[arg-type]
        ClusterView("cluster-1", 4, {}, 900_000),
        identity or Identity.of_this_process("one"),
        2,
        asyncio.Semaphore(1),
    )


def test_names_are_those_of_the_app_and_the_partition():
    """Logs, transactional id, inputs."""
    here = context()
    assert here.increments == TopicPartition("ledger-increments", 2)
    assert here.snapshots == TopicPartition("ledger-snapshots", 2)
    assert here.transactional_id == "ledger-2"
    assert here.input_names == ("left-ledger", "right-ledger")
    assert here.origin.app_id == "ledger"
    assert here.origin.app_version.startswith("1.4+code:")
    assert here.origin.fingerprint


def test_what_is_expected_of_the_log_is_what_is_here():
    """App, cluster, partition count, inputs, and who we are."""
    expected = context().expected
    assert (expected.app_id, expected.cluster_id) == ("ledger", "cluster-1")
    assert (expected.partition, expected.partition_count) == (2, 4)
    assert expected.inputs == {"left-ledger", "right-ledger"}
    assert expected.instance_id == "one"


def test_a_process_is_itself_only_until_it_ends():
    """The random id tells a restart from the process before, where host and instance are the same."""
    first, second = Identity.of_this_process("one"), Identity.of_this_process("one")
    assert first.process_id != second.process_id
    assert (first.host, first.pid) == (socket.gethostname(), os.getpid())


def test_a_name_that_nobody_set_is_that_of_one_process():
    """Two of them on one host are two; which host it is, everybody can read."""
    first, second = Identity.of_this_process(""), Identity.of_this_process("")
    assert first.instance_id != second.instance_id
    assert first.instance_id == f"{socket.gethostname()}-{first.process_id[:8]}"


def test_counters_of_a_partition_are_made_once():
    """Batches are counted on the hot path."""
    here = context()
    assert here.metrics is here.metrics
