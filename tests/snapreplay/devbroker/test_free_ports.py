"""Choosing free ports."""

import errno
import socket
import time
from pathlib import Path

import pytest

from snapreplay.devbroker import free_ports
from tests.support.deadlines import scaled


def test_the_ports_differ_and_can_be_bound() -> None:
    """What is handed out is free at that moment."""
    chosen = free_ports.free_ports(6)
    assert len(set(chosen)) == 6
    for port in chosen:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a broker does
            listener.bind(("127.0.0.1", port))


def test_they_lie_below_those_of_outgoing_connections() -> None:
    """No client's own end of a connection can take the broker's port while that is away."""
    range_file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first_outgoing = int(range_file.read_text().split()[0])
    assert all(port < first_outgoing for port in free_ports.free_ports(20))


def test_a_port_that_something_listens_on_is_passed_over() -> None:
    """A taken port is not handed out, and is free again when its owner closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not free_ports.is_free(port)
    assert free_ports.is_free(port)


def test_a_port_is_waited_for_until_a_broker_of_before_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner was killed, and its keeper ends it a moment later. One that stays taken is not free."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(free_ports, "PATIENCE_S", 0.1)
        assert not free_ports.is_free_soon(port)
        monkeypatch.setattr(free_ports, "PATIENCE_S", scaled(30))
        monkeypatch.setattr(time, "sleep", lambda _: listener.close())
        assert free_ports.is_free_soon(port)


def test_a_range_from_the_lowest_port_on_leaves_the_choice_to_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where all ports are for outgoing connections, some free port is still found."""
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(free_ports, "_RANGE_FILE", tmp_path / "range")
    assert len(free_ports.free_ports(2)) == 2


@pytest.mark.parametrize("text", ["", "nonsense here"])
def test_an_unreadable_range_is_taken_as_the_usual_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    """A system that does not tell its range is treated as most are set up."""
    (tmp_path / "range").write_text(text)
    monkeypatch.setattr(free_ports, "_RANGE_FILE", tmp_path / "range")
    assert all(port < 32_768 for port in free_ports.free_ports(5))


def test_no_free_port_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not search for ever."""
    monkeypatch.setattr(free_ports, "_TRIES", 0)
    with pytest.raises(OSError, match="no 2 free ports") as caught:
        free_ports.free_ports(2)
    assert caught.value.errno != errno.EADDRINUSE
