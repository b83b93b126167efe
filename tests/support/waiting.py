"""Waiting for something under a deadline, and what counts as "not yet" meanwhile."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import httpx2

from snapreplay.errors import PartitionNotLive
from tests.support.deadlines import scaled


@contextmanager
def not_yet() -> Iterator[None]:
    """Take for "not yet" that what is looked at is not there, such as the first status of a service that owns nothing
    so far; a 503: so HTTP answers while the service's loop is blocked, such as on a busy machine; and a connection that
    is closed without an answer: an exchange may take 10 s, which on such a machine is less than a start."""
    try:
        yield
    except httpx2.HTTPStatusError as error:
        if error.response.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
    except (httpx2.RemoteProtocolError, LookupError, AttributeError, TypeError, ValueError, PartitionNotLive):
        pass


def is_true(holds: Callable[[], object]) -> bool:
    """Say whether a condition is true yet."""
    with not_yet():
        return bool(holds())
    return False


def looks(
    holds: Callable[[], object], what: object, seconds: float, now: Callable[[], float] = time.monotonic
) -> Iterator[float]:
    """Look until a condition is true; yield the seconds until the next look. What takes long is looked at less often:
    a look may be a request, which takes CPU of three processes. The last look raises what it meets, or says what was
    waited for."""
    began, limit = now(), scaled(seconds)
    while not is_true(holds):
        if now() > began + limit:
            assert holds(), f"not within {limit:.0f} s: {what}"
            return
        yield pause(now() - began)


def eventually(holds: Callable[[], object], what: object = "", seconds: float = 30.0) -> None:
    """Wait for a condition; says what it was when it does not come true in time."""
    for pause_s in looks(holds, what, seconds):
        time.sleep(pause_s)  # between two looks, under the deadline


def pause(waited_seconds: float) -> float:
    """Seconds until the next look, by those that were waited before."""
    return min(0.01 + waited_seconds / 40, 0.05)
