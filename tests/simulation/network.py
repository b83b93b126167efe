"""The way of a request from a process to the broker and back, and everything that can happen on it.

An effect is applied in the network's own context: what has left a process happens also when the process is stalled
or dead. Generic faults:

    lost          the request never arrives; the caller gives up after its timeout
    answer_lost   it is applied, the caller gives up
    late          the caller gives up, then it is applied
    slow          it arrives late, and the answer too
    throttled     it is answered at once, and then the broker reads nothing from this process for a while (KIP-219)
    crash_before, crash_after    the process dies: nothing was sent / applied, not answered
    stall_before, stall_after    the process is suspended: before it sends / with the answer waiting
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from contextvars import Context
from typing import TypeVar

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.kafka_errors import Unreachable
from tests.simulation.broker import Broker, Concurrent, InvalidTxnState, UnknownTopic
from tests.simulation.faults import Faults
from tests.simulation.loop import VirtualLoop

T = TypeVar("T")
Effect = Callable[[], T]
ANSWERS = (SnapreplayError, Concurrent, InvalidTxnState, UnknownTopic)
"""What a broker may answer other than OK."""

LONGEST_THROTTLE_SECONDS = 4.0
"""Longer than any timeout of a history."""

NOWHERE = Context()
"""The network's context: no process is running."""


class Owner:
    """The process at one end; this one is not to be disturbed."""

    name = "somebody"
    dead = packets_lost = False

    def crash(self) -> None:
        raise AssertionError("no fault was asked for")

    def stall(self) -> None:
        raise AssertionError("no fault was asked for")


class Network:
    """The common ground of all processes: loop, broker, faults, and the seeded random numbers of delays."""

    def __init__(self, loop: VirtualLoop, broker: Broker, faults: Faults, rng: random.Random) -> None:
        self.loop, self.broker, self.faults, self.rng = loop, broker, faults, rng
        self.lines: list[str] | None = None
        self.violations: list[str] = []

    def misused(self, what: str) -> None:
        """A port was used against its contract."""
        self.violations.append(f"at {self.loop.time():.3f}: {what}")

    def met(self, what: str) -> None:
        """Count something rare that a history went through."""
        self.faults.counts[what] += 1

    def trace(self, who: str, what: str) -> None:
        """One line per event, kept only when asked for."""
        if self.lines is not None:
            self.lines.append(f"{self.loop.time():10.4f}  {who:<8} {what}")

    def latency(self) -> float:
        return 0.0005 + 0.004 * self.rng.random()

    def pause(self, longest: float) -> float:
        """Seconds up to `longest`, more often short than long."""
        return longest * float(self.rng.random()) ** 2


class Link:
    """One process's way to the broker."""

    def __init__(self, network: Network, owner: Owner) -> None:
        self.network, self.owner = network, owner
        self._muted_until = 0.0
        self.rng = network.rng

    def draw(self, site: str) -> str | None:
        self._alive()
        fault = self.network.faults.draw(site)
        if fault is not None:
            self.network.trace(self.owner.name, f"fault {site}.{fault}")
        return fault

    async def call(self, site: str, effect: Effect[T], timeout: float) -> T:
        """One request, with any fault. Raises Unreachable: no answer within `timeout` seconds."""
        return await self.perform(self.draw(site), effect, timeout)

    async def connect(self, timeout: float) -> None:
        """A new connection; without a fault it takes no time, the first request on it does."""
        fault = self.draw("connect")
        if fault is not None:
            await self.perform(fault, lambda: None, timeout)

    async def perform(self, fault: str | None, effect: Effect[T], timeout: float) -> T:
        """The same with the fault drawn already."""
        network = self.network
        match fault:
            case None if self._muted_seconds > timeout:
                self.send(network.latency(), effect)
                await asyncio.sleep(timeout)
                raise Unreachable(f"no answer within {timeout} s")
            case None:
                return await self.rpc(effect)
            case "throttled":
                result = await self.rpc(effect)
                self._muted_until = network.loop.time() + network.pause(LONGEST_THROTTLE_SECONDS)
                return result
            case "lost" | "answer_lost" | "late":
                if fault != "lost":
                    late = fault == "late"
                    self.send(timeout + network.pause(6.0) if late else network.latency(), effect)
                await asyncio.sleep(timeout)
                raise Unreachable(f"no answer within {timeout} s")
            case "slow":
                result = await self.rpc(effect, network.pause(timeout))
                await asyncio.sleep(network.pause(timeout))
                return result
            case "crash_before":
                await self.crash()
                return await self.rpc(effect)
            case "stall_before":
                await self.stall()
                return await self.rpc(effect)
            case "crash_after" | "stall_after":
                return await self._then(fault, effect)
            case _:
                raise AssertionError(f"there is no fault {fault}")

    async def rpc(self, effect: Effect[T], delay: float = 0.0) -> T:
        """A request that arrives and is answered. A dead process's packets may be lost with it."""
        self._alive()
        loop, owner = self.network.loop, self.owner
        answer: asyncio.Future[T] = loop.create_future()

        def arrive() -> None:
            if owner.dead and owner.packets_lost:
                return
            try:
                result = effect()
            except ANSWERS as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        loop.call_later(self._muted_seconds + delay + self.network.latency(), arrive, context=NOWHERE)
        return await answer

    @property
    def _muted_seconds(self) -> float:
        return max(0.0, self._muted_until - self.network.loop.time())

    def send(self, delay: float, effect: Callable[[], object]) -> None:
        """A request that arrives after `delay`, and whose answer has no reader."""

        def arrive() -> None:
            with contextlib.suppress(*ANSWERS):
                effect()

        self.network.loop.call_later(self._muted_seconds + delay, arrive, context=NOWHERE)

    async def crash(self) -> None:
        """Crash here and now; this task ends with its process, unless that is spared by now."""
        if self.network.faults.owners_spared:
            return
        self.owner.crash()
        await self.network.loop.create_future()

    async def stall(self) -> None:
        """Continues when the process does."""
        self.owner.stall()
        await asyncio.sleep(0)

    async def _then(self, fault: str, effect: Effect[T]) -> T:
        def happens() -> T:
            try:
                return effect()
            finally:
                if fault == "stall_after":
                    self.owner.stall()
                elif not self.network.faults.owners_spared:
                    self.owner.crash()

        return await self.rpc(happens)

    def _alive(self) -> None:
        """A dead process has no further effect: what its tasks still do is to be unwound."""
        if self.owner.dead:
            raise asyncio.CancelledError
