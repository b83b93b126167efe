"""Network namespaces for three brokers: each has an address of its own, and its links can be cut without a word.

      this process and its children              198.18.N.1
                    │ veth
      ┌─────────────┴──────────────┐
      │ a bridge in a namespace    │             dropped packets leave no trace: no RST, no answer
      └──┬──────────┬──────────┬───┘
         │ veth     │          │
      broker 0   broker 1   broker 2             198.18.N.2, .3, .4; iptables in the broker's own namespace

No namespace has a name: each lives as long as the process in it, which dies with this one, however this one ends, and
takes its links along.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from snapreplay.devbroker.process import KeptProcess
from snapreplay.devbroker.properties import Node
from tests.support.deadlines import scaled
from tests.support.flows import CLIENTS, Direction, Flow, Side, flows

PORT, CONTROLLER_PORT = 9092, 9093
COMMAND_S = scaled(10.0)
READY_S = scaled(10.0)


class NotAllowed(Exception):
    """Namespaces cannot be had here; the text says why."""


class Namespaces:
    """`size` namespaces behind one bridge, all links whole. Close with `close`, after the brokers have ended."""

    kind = "network namespaces"

    def __init__(self, size: int) -> None:
        """
        Raises:
            NotAllowed: no root, no such kernel, or a tool is missing.
        """
        self._size = size
        self._kept = contextlib.ExitStack()
        self.uplink = f"snr{secrets.token_hex(4)}"
        try:
            self._subnet = _free_subnet()
            self._switch, *self._brokers = [self._namespace() for _ in range(size + 1)]
            self._connect_switch()
            for number in range(size):
                self._connect_broker(number)
        except (OSError, subprocess.SubprocessError, TimeoutError) as error:
            self.close()
            raise NotAllowed(f"{error} {getattr(error, 'stderr', '')}".strip()) from error

    @property
    def nodes(self) -> Sequence[Node]:
        """Where the brokers listen, and how their commands get there."""
        return [
            Node(
                n + 1,
                PORT,
                CONTROLLER_PORT,
                host=self.address(n),
                enter=tuple(_enter(self._brokers[n])),
            )
            for n in range(self._size)
        ]

    def address(self, number: int) -> str:
        """Of broker `number`, or of the clients."""
        return f"{self._subnet}.{number + 2}"

    def enter(self, number: int) -> list[str]:
        """The command that runs another one in the namespace of broker `number`."""
        return _enter(self._brokers[number])

    def cut(self, broker: int, side: Side, direction: Direction = "both") -> None:
        """Drop every packet between `broker` and its `side`, from now on and on top of what is cut already."""
        for source, target in flows(broker, side, direction, self._size):
            self._drop(broker, (source, target))

    def heal(self) -> None:
        """All links are whole again."""
        for number in range(self._size):
            _run([*self.enter(number), "iptables", "-w", "-F"])

    def close(self) -> None:
        """End the namespaces, their links with them. Never twice."""
        self._kept.close()

    def _drop(self, broker: int, flow: Flow) -> None:
        source, target = flow
        chain = ["INPUT", "-s", self.address(source)]
        if source == broker:
            chain = ["OUTPUT", "-d", self.address(target)]
        _run([*self.enter(broker), "iptables", "-w", "-A", *chain, "-j", "DROP"])

    def _namespace(self) -> int:
        """The id of a process that has a network namespace of its own."""
        work_dir = Path(tempfile.mkdtemp(prefix="snapreplay-netns-"))
        keeper = KeptProcess(work_dir)
        self._kept.callback(keeper.close)
        pid = keeper.run(["unshare", "--net", "sleep", "infinity"], work_dir / "log")
        ours, theirs = Path("/proc/self/ns/net"), Path(f"/proc/{pid}/ns/net")
        deadline = time.monotonic() + READY_S
        while theirs.readlink() == ours.readlink():
            if keeper.exit_code() is not None or time.monotonic() > deadline:
                raise OSError(f"unshare --net: {(work_dir / 'log').read_text()}")
            time.sleep(0.005)
        return pid

    def _connect_switch(self) -> None:
        _ip([], f"link add {self.uplink} type veth peer name uplink netns {self._switch}")
        _ip(
            [],
            f"addr add {self.address(CLIENTS)}/24 dev {self.uplink}",
            f"link set {self.uplink} up",
        )
        _ip(
            _enter(self._switch),
            "link add name bridge0 type bridge",
            "link set uplink master bridge0 up",
            "link set bridge0 up",
        )

    def _connect_broker(self, number: int) -> None:
        pid, port = self._brokers[number], f"broker{number}"
        _ip(
            _enter(self._switch),
            f"link add {port} type veth peer name eth0 netns {pid}",
            f"link set {port} master bridge0 up",
        )
        _ip(
            _enter(pid),
            f"addr add {self.address(number)}/24 dev eth0",
            "link set eth0 up",
            "link set lo up",
        )
        _run([*_enter(pid), "iptables", "-w", "-F"])  # better here than at the first cut


@contextlib.contextmanager
def namespaces(size: int) -> Iterator[Namespaces]:
    """For the length of a block."""
    made = Namespaces(size)
    try:
        yield made
    finally:
        made.close()


def _enter(pid: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


def _ip(enter: Sequence[str], *lines: str) -> None:
    for line in lines:
        _run([*enter, "ip", *line.split()])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def _free_subnet() -> str:
    """The first three numbers of one in 198.18.0.0/15, which is for tests of networks and never routed."""
    used = _run(["ip", "-o", "-4", "addr"])
    for _ in range(100):
        subnet = f"198.{random.randint(18, 19)}.{random.randint(0, 255)}"
        if f" {subnet}." not in used:
            return subnet
    raise OSError("every subnet of 198.18.0.0/15 is in use")
