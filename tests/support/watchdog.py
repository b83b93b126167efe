"""The end of a test that hangs.

`pytest-timeout` fails the test by an exception. Hypothesis takes it for a failing example and runs that again, now
without a timer: so here it is one that Hypothesis does not catch. What hangs all the same, such as C code that never
comes back, ends the process with all its stacks; xdist then continues with another one.

A machine that became busy meanwhile gives the test more time.
"""

import faulthandler
import signal
import time
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from tests.support.deadlines import scaled

GRACE_SECONDS = 60.0
"""From the exception to the end of the process: fixtures that clean up need some of it."""


class Hung(BaseException):
    """The test was not done within its time."""


def set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """`pytest_timeout_set_timer`. None, which leaves it to pytest-timeout, for another method than signals."""
    if settings.method != "signal":
        return None
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    begun = time.monotonic()

    def watch(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        end = seconds + scaled(GRACE_SECONDS)
        faulthandler.dump_traceback_later(end, exit=True, file=stderr)

    def expired(*_: Any) -> None:
        passed = time.monotonic() - begun
        left = scaled(settings.timeout) - passed
        if left > 0:
            watch(left)
            return
        faulthandler.dump_traceback(stderr)
        raise Hung(f"Timeout (>{passed:.0f} s)")

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.cancel_dump_traceback_later()

    item.cancel_timeout = cancel  # type: ignore[attr-defined] # pytest-timeout calls it
    signal.signal(signal.SIGALRM, expired)
    watch(scaled(settings.timeout))
    return True
