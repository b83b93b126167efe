"""Limits how often somebody may ask for what costs. Each has a token bucket, so that one takes no more than a share.

Processes of the app ask each other for themselves alone (`scope=local`), which none of these rates is about.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency

from snapreplay.api import problems

ASKER_OF_RATES = "snapreplay.asker_of_rates"
"""The key of a request's scope for whom its rate counts: a login, or an address where nobody logs in."""
KEPT_MAX = 1024
"""Of those who have lately asked; where more do, whoever has not asked for longest begins anew."""


class Rate(NamedTuple):
    """A bucket of `burst` requests, which is filled with so many in a second."""

    what: str
    per_second: float
    burst: int


READS_OF_LOGS = Rate("what is read from Kafka", 1, 20)
READS_OF_ALL = Rate("what all other processes are asked for", 10, 100)
READS_ELSEWHERE = Rate("entries that are read in another process", 50, 200)
FAILED_LOGINS = Rate("a login with an invalid token", 10, 100)


class Rates:
    """Counts what each one asks for. In memory, for one loop."""

    def __init__(self, factor: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        """Take `factor`, by which each rate is larger."""
        self._factor = factor
        self._clock = clock
        self._full_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def spend(self, rate: Rate, who: str) -> None:
        """Count one request.

        Raises:
            ProblemError: the bucket is empty.
        """
        now, every_seconds = self._clock(), 1 / (rate.per_second * self._factor)
        full_at = max(now, self._full_at.pop((rate.what, who), now))
        wait_seconds = full_at - now - (rate.burst - 1) * every_seconds
        is_empty = wait_seconds > 1e-6  # of what the sums of floats lose
        self._full_at[rate.what, who] = full_at if is_empty else full_at + every_seconds
        while len(self._full_at) > KEPT_MAX or next(iter(self._full_at.values())) < now:
            self._full_at.popitem(last=False)
        if is_empty:
            raise problems.too_often(rate.what, rate.per_second * self._factor, wait_seconds)


UNLIMITED = Rates(math.inf)


def spend(request: Request, rate: Rate) -> None:
    """Count a request for whoever makes it, or raise a problem."""
    rates: Rates = request.app.state.rates
    rates.spend(rate, request.scope[ASKER_OF_RATES])


def costs(rate: Rate) -> Dependency:
    """Make the dependency of a route that each request counts for."""

    async def counted(request: Request) -> None:
        spend(request, rate)

    found: Dependency = Depends(counted)
    return found
