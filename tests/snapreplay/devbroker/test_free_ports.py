"""Choosing free ports."""

import socket
import time
from pathlib import Path

import pytest

from snapreplay.devbroker import free_ports
from tests.support.deadlines import scaled


def test_they_can_be_bound_and_lie_below_those_of_outgoing_connections() -> None:
    """No client's own end of a connection can take the broker's port while that is away."""
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    chosen = free_ports.free_ports(6)
    assert len(set(chosen)) == 6
    for port in chosen:
        assert port < first_outgoing
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a broker does
            listener.bind(("127.0.0.1", port))


def test_a_port_is_waited_for_until_a_broker_of_before_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner was killed, and its keeper ends it a moment later. One that stays taken is not free."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(free_ports, "PATIENCE_S", 0.1)
        assert not free_ports.is_free_soon(port)
        monkeypatch.setattr(free_ports, "PATIENCE_S", scaled(30))
        monkeypatch.setattr(time, "sleep", lambda _: listener.close())
        assert free_ports.is_free_soon(port)
