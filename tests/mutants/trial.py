"""One mutant on trial: its tests run in a scratch copy, and must fail."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutants.mutant import Mutant, environment, patched, scratch_copy

DEADLINE_SECONDS = 400.0
# As it happens, and not from the summary: what a broken product leaves open can end pytest before it writes one.
FAILED = re.compile(r"^(\S+::.+?) (?:FAILED|ERROR)\b", re.MULTILINE)
TESTS_FAILED = 1  # pytest's exit code; 2 to 5 mean that it could not run them


class Fate(StrEnum):
    """How a trial ended."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    BROKEN = "could not be tried"


@dataclass(frozen=True)
class Trial:
    """`by`: the test that failed first; for a trial that could not be held, why."""

    mutant: Mutant
    fate: Fate
    by: str
    seconds: float


def try_mutant(mutant: Mutant, deadline_seconds: float = DEADLINE_SECONDS) -> Trial:
    """Apply it to a copy of its own and run its tests there until one fails."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        scratch = Path(folder)
        scratch_copy(scratch)
        for path, text in patched(mutant).items():
            (scratch / path).write_text(text)
        try:
            done = _run_tests(mutant, scratch, deadline_seconds)
        except subprocess.TimeoutExpired:
            return Trial(mutant, Fate.BROKEN, "its tests did not end", time.monotonic() - began)
    failed = FAILED.findall(done.stdout)
    seconds = time.monotonic() - began
    if done.returncode == TESTS_FAILED and failed:
        return Trial(mutant, Fate.CAUGHT, failed[0], seconds)
    if done.returncode == TESTS_FAILED and "Timeout" in done.stdout + done.stderr:
        return Trial(mutant, Fate.CAUGHT, "a test that did not end", seconds)
    if done.returncode == 0:
        return Trial(mutant, Fate.SURVIVED, "", seconds)
    last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    return Trial(mutant, Fate.BROKEN, f"pytest exit {done.returncode}: {''.join(last)}", seconds)


def _run_tests(
    mutant: Mutant, scratch: Path, deadline_seconds: float
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider", *mutant.tests]
    return subprocess.run(
        command,
        cwd=scratch,
        env=environment(scratch),
        capture_output=True,
        text=True,
        timeout=deadline_seconds,
        check=False,
    )
