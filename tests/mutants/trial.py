"""One mutant on trial: its tests run in a scratch copy, and must fail."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutants.mutant import environment, scratch_copy

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

    fate: Fate
    by: str
    seconds: float


def held(
    patched: Mapping[str, str], tests: Sequence[str], deadline_seconds: float = DEADLINE_SECONDS
) -> Trial:
    """Run the tests in a copy of its own, where some files have another text, until one fails."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        scratch = Path(folder)
        scratch_copy(scratch)
        for path, text in patched.items():
            (scratch / path).write_text(text)
        try:
            fate, by = _judged(_run_tests(tests, scratch, deadline_seconds))
        except subprocess.TimeoutExpired:
            fate, by = Fate.BROKEN, "its tests did not end"
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


def _run_tests(
    tests: Sequence[str], scratch: Path, deadline_seconds: float
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command,
        cwd=scratch,
        env=environment(scratch),
        capture_output=True,
        text=True,
        timeout=deadline_seconds,
        check=False,
    )
