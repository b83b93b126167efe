"""One broker process: what it does when its port is taken, when it dies, when it is too slow."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from snapreplay.devbroker import jars
from snapreplay.devbroker.files import KafkaFiles, LocalBrokerFailed, LocalBrokerUnavailable, new_id
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.node import LocalNode, StartDeadline, port_was_taken
from snapreplay.devbroker.properties import Node
from tests.support.deadlines import scaled
from tests.support.waiting import eventually

pytestmark = pytest.mark.kafka
Start = Callable[..., LocalNode]


@pytest.fixture(scope="session")
def kafka() -> KafkaFiles:
    """The real jars."""
    return jars.ensure()


@pytest.fixture
def make_node(kafka: KafkaFiles) -> Iterator[Start]:
    """Make a broker that is prepared but not launched; all are closed at the end."""
    made: list[LocalNode] = []

    def make(*, files: KafkaFiles = kafka, data_dir: Path | None = None, **extra: str) -> LocalNode:
        address = Node(1, *free_ports(2))
        made.append(LocalNode(files, address, 256))
        settings = {name.replace("_", "."): value for name, value in extra.items()}
        made[-1].prepare([address], new_id(), data_dir, settings)
        return made[-1]

    yield make
    for node in made:
        node.close()


def patience(seconds: float = 30.0) -> StartDeadline:
    """Some patience that does not run out."""
    return StartDeadline(scaled(seconds), threading.Event())


def restart_refused(node: LocalNode, patience: StartDeadline, then: Callable[[], None]) -> None:
    """Restart while another program has the port; `then` is done as soon as the broker was refused it."""

    def react() -> None:
        eventually(lambda: port_was_taken(node.log_path), "refused")
        then()

    with ThreadPoolExecutor(1) as pool:
        reaction = pool.submit(react)
        node.restart(patience)
        reaction.result()


@pytest.fixture
def frozen(kafka: KafkaFiles, make_node: Start, tmp_path: Path) -> LocalNode:
    """A broker that will never have started, however long this process is suspended."""
    java = tmp_path / "java"
    java.write_text(f'#!/bin/sh\nkill -STOP $$\nexec {kafka.java} "$@"\n')
    java.chmod(0o755)
    node = make_node(files=replace(kafka, java=java))
    node.launch()
    return node


@pytest.mark.whole
def test_a_restart_insists_on_its_port(make_node: Start) -> None:
    """A port that is taken for a moment is waited for: the clients know no other."""
    node = make_node()
    before = node.bootstrap_server
    squatter = socket.create_server(("127.0.0.1", node.address.port))
    restart_refused(node, patience(), squatter.close)
    assert node.bootstrap_server == before


def test_a_broker_that_is_too_slow_is_a_failure(frozen: LocalNode) -> None:
    """The wait ends at the deadline, with the log's last lines."""
    with pytest.raises(LocalBrokerFailed, match="did not start in time"):
        frozen.wait_started(patience(0.05))
    frozen.kill()  # it does not hear of an orderly end


@pytest.mark.whole
def test_a_given_data_directory_in_use_is_refused_before_a_second_broker_touches_it(
    make_node: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two brokers on one directory would destroy it; when the first is gone, it is free. The second one waits a moment
    for that."""
    data = tmp_path / "data"
    first = make_node(data_dir=data)
    first.launch()
    first.wait_started(patience())
    monkeypatch.setattr(f"{free_ports.__module__}.PATIENCE_S", 0.1)
    with pytest.raises(LocalBrokerUnavailable, match="another broker uses this") as refused:
        make_node(data_dir=data)
    assert refused.value.hint == "stop that broker, or name another directory"
    monkeypatch.setattr(f"{free_ports.__module__}.PATIENCE_S", scaled(30))
    with monkeypatch.context() as waits:
        waits.setattr(time, "sleep", lambda _: first.kill())
        second = make_node(data_dir=data)
    second.launch()
    second.wait_started(patience())


def test_a_data_directory_of_another_node_is_a_failure_that_says_so(
    make_node: Start, kafka: KafkaFiles, tmp_path: Path
) -> None:
    """The cause is named, not only the exit code."""
    kafka.format(tmp_path / "data", 7, new_id())
    node = make_node(data_dir=tmp_path / "data")
    node.launch()
    with pytest.raises(LocalBrokerFailed, match="exit code 1: the data directory belongs to another broker"):
        node.wait_started(patience())


def test_without_a_keeper_there_is_no_broker(
    kafka: KafkaFiles, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When no further process can be started the error says so, and no directory is left."""
    monkeypatch.setattr("sys.executable", "/does/not/exist")
    with pytest.raises(LocalBrokerUnavailable, match="its keeper process did not start"):
        LocalNode(kafka, Node(1, *free_ports(2)), 256)
    assert list(temporary.iterdir()) == []
