"""One mutant on trial: its tests run in a scratch copy, and must fail."""

import atexit
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.mutants.mutant import Mutant, Scratch
from tests.mutants.patch import PatchDoesNotFit
from tests.support.deadlines import scaled

DEADLINE_SECONDS = 400.0
# As it happens, and not from the summary: what a broken product leaves open can end pytest before it writes one.
FAILED = re.compile(r"^(\S+::.+?) (?:FAILED|ERROR)\b", re.MULTILINE)
_of_thread = threading.local()
TESTS_FAILED = 1  # pytest's exit code; 2 to 5 mean that it could not run them


class Fate(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "survived"
    BROKEN = "could not be tried"


@dataclass(frozen=True)
class Trial:
    """A trial; `by`: the test that failed first; for a trial that could not be held, why."""

    fate: Fate
    by: str
    seconds: float


def held(mutant: Mutant | None, tests: Sequence[str], deadline_seconds: float = DEADLINE_SECONDS) -> Trial:
    """Run the tests in this thread's copy, with the mutant in it, until one fails."""
    began = time.monotonic()
    if not hasattr(_of_thread, "scratch"):
        _of_thread.scratch = Scratch()
        atexit.register(_of_thread.scratch.close)
    scratch = _of_thread.scratch
    try:
        with scratch.changed({} if mutant is None else mutant.patched(scratch.root)):
            fate, by = _judged(_run_tests(tests, scratch, scaled(deadline_seconds)))
    except subprocess.TimeoutExpired:
        fate, by = Fate.BROKEN, "its tests did not end"
    except PatchDoesNotFit as error:
        fate, by = Fate.BROKEN, str(error)
    return Trial(fate, by, time.monotonic() - began)


def _judged(done: subprocess.CompletedProcess[str]) -> tuple[Fate, str]:
    failed = FAILED.findall(done.stdout)
    if done.returncode == TESTS_FAILED and failed:
        return Fate.CAUGHT, failed[0]
    if done.returncode == TESTS_FAILED and "Timeout" in done.stdout + done.stderr:
        return Fate.CAUGHT, "a test that did not end"
    if done.returncode == 0:
        return Fate.SURVIVED, ""
    last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    return Fate.BROKEN, f"pytest exit {done.returncode}: {''.join(last)}"


def _run_tests(tests: Sequence[str], scratch: Scratch, deadline_seconds: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-m", "", "-v", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command,
        cwd=scratch.root,
        env=scratch.environment,
        capture_output=True,
        text=True,
        timeout=deadline_seconds,
        check=False,
    )
