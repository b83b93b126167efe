"""Namespaces whose links are cut: what passes, in which direction, and that nothing is left of them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.netns import Namespaces, NotAllowed, namespaces

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 10.0
SILENCE_S = 0.3

# Answers each datagram with its own bytes, and notes it.
ECHO = """
import socket, sys
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind((sys.argv[1], 9000))
print("ready", flush=True)
while True:
    data, sender = here.recvfrom(100)
    print(data.decode(), flush=True)
    try:
        here.sendto(data, sender)
    except PermissionError:  # a datagram that iptables drops is reported to its sender, a segment of TCP is not
        pass
"""
ASK = """
import socket, sys
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.settimeout(float(sys.argv[2]))
here.sendto(b"peer", (sys.argv[1], 9000))
print(here.recv(100).decode())
"""
SERVE = """
import socket, sys
here = socket.create_server((sys.argv[1], 9001))
print("ready", flush=True)
connection, _ = here.accept()
print(connection.recv(9))
"""
OWNER = """
import time
from tests.support.netns import Namespaces
made = Namespaces(1)
print(made.uplink, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Namespaces]:
    """Two namespaces, or no test where there can be none."""
    try:
        made = Namespaces(2)
    except NotAllowed as why:
        pytest.skip(f"no network namespaces here: {why}")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def healed(two: Namespaces) -> Iterator[None]:
    """Each test begins with whole links."""
    yield
    two.heal()


class Echo:
    """A process in the first namespace that answers datagrams."""

    def __init__(self, two: Namespaces) -> None:
        self.address = two.address(0)
        command = [*two.enter(0), sys.executable, "-c", ECHO, self.address]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.line() == "ready"

    def line(self) -> str:
        """The next thing it heard."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, word: str, seconds: float = DEADLINE_S) -> str | None:
        """Send it a word from here; the answer, None when there is none in time."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            here.settimeout(seconds)
            here.sendto(word.encode(), (self.address, 9000))
            try:
                return here.recv(100).decode()
            except TimeoutError:
                return None


@pytest.fixture(scope="module")
def echo(two: Namespaces) -> Iterator[Echo]:
    running = Echo(two)
    yield running
    running.process.kill()
    running.process.wait()
    assert running.process.stdout is not None
    running.process.stdout.close()


def asked_by_its_peer(two: Namespaces, seconds: float = DEADLINE_S) -> bool:
    """Whether it answers the process in the other namespace."""
    command = [*two.enter(1), sys.executable, "-c", ASK, two.address(0), str(seconds)]
    return (
        subprocess.run(command, capture_output=True, timeout=6 * DEADLINE_S, check=False).returncode
        == 0
    )


def test_a_whole_link_carries_both_ways(two: Namespaces, echo: Echo) -> None:
    """From here and from the peer, there and back."""
    assert echo.ask("one") == "one"
    assert asked_by_its_peer(two)
    assert [echo.line(), echo.line()] == ["one", "peer"]


def test_a_cut_inwards_loses_the_question(two: Namespaces, echo: Echo) -> None:
    """It never hears it; after the healing it hears the next one."""
    two.cut(0, "clients", "in")
    assert echo.ask("lost", SILENCE_S) is None
    two.heal()
    assert echo.ask("heard") == "heard"
    assert echo.line() == "heard"


def test_a_cut_outwards_loses_the_answer(two: Namespaces, echo: Echo) -> None:
    """It hears the question, and nobody hears its answer."""
    two.cut(0, "clients", "out")
    assert echo.ask("heard", SILENCE_S) is None
    assert echo.line() == "heard"


def test_a_broker_cut_from_its_peers_still_serves_clients(two: Namespaces, echo: Echo) -> None:
    """The stale leader of the attacks; and the other way round."""
    two.cut(0, "peers")
    assert not asked_by_its_peer(two, SILENCE_S)
    assert echo.ask("client") == "client"
    two.heal()
    two.cut(0, "clients")
    assert echo.ask("lost", SILENCE_S) is None
    assert asked_by_its_peer(two)
    assert [echo.line(), echo.line()] == ["client", "peer"]


def test_a_cut_connection_is_not_reset(two: Namespaces) -> None:
    """No RST, no FIN: silence, and after the healing everything arrives."""
    command = [*two.enter(0), sys.executable, "-c", SERVE, two.address(0)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        with socket.create_connection((two.address(0), 9001), DEADLINE_S) as connection:
            two.cut(0, "clients")
            connection.sendall(b"late")
            connection.settimeout(SILENCE_S)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            two.heal()
            assert server.stdout.readline() == "b'late'\n"


def test_nothing_is_left(two: Namespaces) -> None:
    """After the block, and after the SIGKILL of the process that made them: no link, no address."""
    with namespaces(1) as made:
        assert exists(made.uplink)
    until(lambda: not exists(made.uplink))
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        uplink = owner.stdout.readline().strip()
        assert exists(uplink)
        os.kill(owner.pid, signal.SIGKILL)
    until(lambda: not exists(uplink))
    assert exists(two.uplink)


def exists(interface: str) -> bool:
    return Path("/sys/class/net", interface).exists()


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
