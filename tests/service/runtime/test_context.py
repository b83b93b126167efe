"""Tests of who a process is, and what one partition has only once."""

import asyncio
import os
import socket
from typing import Any

from snapreplay.service.config.settings import Settings
from snapreplay.service.runtime.context import ClusterView, Context, Identity
from tests.support import apps


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


def test_a_partition_has_its_own_producer_and_counters():
    """Another partition's fence would end its owner. Batches are counted on the hot path: counters are made once."""
    nothing: Any = None
    view = ClusterView("cluster-1", 4, {}, 900_000)
    here = Context(apps.ledger("x"), Settings(), nothing, view, nothing, 2, asyncio.Semaphore(1))
    assert here.transactional_id == "x-2"
    assert here.metrics is here.metrics
