"""The wires between service processes and brokers: one per (process, broker), all in one thread."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager

from tests.chaos.late_commits import Late, LateCommits
from tests.support.flows import Direction
from tests.support.wire import Fate, Wire, detour, loop_of_wires

VARIABLE = "CHAOS_DETOURS"
"""JSON: a broker's "host:port" → port of its wire on the loopback address."""

RESET_EVERY = 20


def install_from_environment() -> None:
    """Install the wires in a service process: its connections go through its wires."""
    detour(json.loads(os.environ.get(VARIABLE, "{}"))).start()


class Bundle:
    """All wires of one service process."""

    def __init__(self, targets: list[tuple[str, int]]) -> None:
        self.wires = [Wire(target, self._decide) for target in targets]
        self.late = LateCommits()
        self.reset: Fate = "pass"
        self._requests = 0

    @property
    def detours(self) -> dict[str, int]:
        """A broker's address → the port of the wire to it."""
        return {f"{host}:{port}": w.port for w in self.wires for host, port in (w.target,)}

    async def _decide(self, wire: Wire, frame: bytes) -> Fate:
        if self.late.holds(wire, frame):
            return "hold"
        self._requests += 1
        if self.reset != "pass" and self._requests % RESET_EVERY == 0:
            return self.reset
        await self.late.let_pass(frame)
        return "pass"


class Wires:
    """Usable from any thread. What is done to a bundle is done for the length of a block."""

    def __init__(self, bootstrap_servers: str) -> None:
        pairs = (server.rpartition(":") for server in bootstrap_servers.split(","))
        self._targets = [(host, int(port)) for host, _, port in pairs]
        self._kept, self._open = ExitStack(), AsyncExitStack()
        self._cuts: dict[Wire, list[Direction]] = {}

    def __enter__(self) -> Wires:
        self._run = self._kept.enter_context(loop_of_wires())
        self._kept.callback(lambda: self._run(self._open.aclose()))
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def bundle(self) -> Bundle:
        """One process's wires, open."""
        bundle = Bundle(self._targets)
        for wire in bundle.wires:
            self._run(self._open.enter_async_context(wire.listening()))
        return bundle

    @contextmanager
    def cut(self, bundle: Bundle, broker: int, direction: Direction) -> Iterator[None]:
        """Nothing passes between this process and this broker (from 0), as long as anybody has it cut."""
        wire = bundle.wires[broker]
        cuts = self._cuts.setdefault(wire, [])
        cuts.append(direction)
        self._run(wire.cut(_together(cuts)))
        try:
            yield
        finally:
            cuts.remove(direction)
            self._run(wire.cut(_together(cuts)) if cuts else wire.heal())

    @contextmanager
    def delayed(self, bundle: Bundle, seconds: float) -> Iterator[None]:
        """Every answer is that much later, beside what others do."""
        for wire in bundle.wires:
            wire.delay_s += seconds
        try:
            yield
        finally:
            for wire in bundle.wires:
                wire.delay_s -= seconds

    @contextmanager
    def reset(self, bundle: Bundle, fate: Fate) -> Iterator[None]:
        """Now and then a request ends its connection."""
        bundle.reset = fate
        try:
            yield
        finally:
            bundle.reset = "pass"

    @contextmanager
    def late_commits(self, bundle: Bundle) -> Iterator[list[Late]]:
        """Make the next EndTxn late on each wire; yield those that were, once the block has ended."""
        found: list[Late] = []
        before = len(bundle.late.delivered)
        bundle.late.arm(bundle.wires)
        try:
            yield found
        finally:
            self._run(bundle.late.settled())
            found += bundle.late.delivered[before:]


def _together(cuts: Sequence[Direction]) -> Direction:
    first, *others = {*cuts}
    return "both" if others else first
