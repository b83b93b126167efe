"""The command line of snapreplay, run as a user would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from examples.demo.failed import DemoFailed

COMMAND_S = 60.0
TAIL_LINES, TAIL_COLUMNS = 25, 240


def snapreplay(*arguments: str) -> list[str]:
    """Return the command and its arguments, run by this Python."""
    return [sys.executable, "-m", "snapreplay.api.cli", *arguments]


def run(work_dir: Path, *arguments: str) -> list[str]:
    """Run a command to its end; return the lines of its standard output.

    Raises:
        DemoFailed: the exit code is not 0, or it did not end within a minute; with its output.
    """
    shown = " ".join(["snapreplay", *arguments])
    try:
        done = subprocess.run(
            snapreplay(*arguments),
            cwd=work_dir,  # a snapreplay.toml in the user's directory is not meant for the demo
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DemoFailed(f"{shown} did not end within {COMMAND_S:.0f} s") from error
    if done.returncode != 0:
        raise DemoFailed(f"{shown} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(f"  | {line[:TAIL_COLUMNS]}" for line in lines[-TAIL_LINES:])
