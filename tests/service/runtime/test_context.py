"""Tests of who a process is, and what one partition has only once."""

import asyncio
import os
import socket
from typing import Any

from examples.flights import app as flights
from snapreplay.service.config.settings import Settings
from snapreplay.service.runtime.context import ClusterView, Context, Identity
from tests.support import apps


def test_a_process_is_itself_only_until_it_ends():
    """The random id tells a restart from the process before, where host and instance are the same."""
    first, second = Identity.of_this_process("one"), Identity.of_this_process("one")
    assert first.process_id != second.process_id
    assert (first.host, first.pid) == (socket.gethostname(), os.getpid())


def test_a_name_that_was_not_set_is_that_of_one_process():
    """Two of them on one host are two; which host it is, everybody can read."""
    first, second = Identity.of_this_process(""), Identity.of_this_process("")
    assert first.instance_id != second.instance_id
    assert first.instance_id == f"{socket.gethostname()}-{first.process_id[:8]}"


def context_of(app: Any) -> Context:
    nothing: Any = None
    view = ClusterView("cluster-1", 4, {}, 900_000)
    return Context(app, Settings(), nothing, view, Identity.of_this_process("one"), 2, asyncio.Semaphore(1))


def test_a_partition_has_its_own_producer_and_counters():
    """Another partition's fence would end its owner. Batches are counted on the hot path: counters are made once."""
    here = context_of(apps.ledger("x"))
    assert here.transactional_id == "x-2"
    assert here.metrics is here.metrics


def test_a_refusal_names_the_app_as_a_command_takes_it():
    """Its module and attribute, where it has them."""
    assert context_of(flights).expected.app() == "examples.flights:app"
