"""The command `snapreplay dev --reload`: the service in a process of its own, started again whenever the app's code
changes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from snapreplay.api.cli.output import note
from snapreplay.app.user_modules import own_files
from snapreplay.errors import UsageError

LOOK_S = 0.25

Stamps = dict[Path, tuple[int, int]]


class Watch:
    """The files of an app: its module and those of the same author that it imports, found without running them."""

    def __init__(self, app: str) -> None:
        """Watch the files of `app`, or raise UsageError: there is no such file, and none will be started by a
        change of it."""
        place = app.rpartition(":")[0] or app
        path = Path(place)
        is_file = place.endswith(".py") or "/" in place
        if is_file and not path.is_file():
            raise UsageError(f"app file {path} does not exist")
        self._module = path.stem if is_file else place
        folder = path.resolve().parent if is_file else Path.cwd()
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        self._files = {path.resolve()} if is_file else set(folder.glob("*.py"))

    def look(self) -> Stamps:
        """Look when each file was written, and at its size. A file that cannot be compiled now keeps those that
        were known."""
        with suppress(UsageError):  # the service says what is wrong with it
            self._files |= {Path(file).resolve() for file in own_files([self._module])}
        return {file: _stamp(file) for file in self._files}


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:  # it is being replaced
        return (0, 0)
    return status.st_mtime_ns, status.st_size


class _Stopped(Exception):
    """Ctrl-C or SIGTERM."""


def keep_running(watch: Watch, command: Sequence[str]) -> int:
    """Run `command` until Ctrl-C or SIGTERM; after each change of the app's files, stop it gracefully and start it
    again. If it ends by itself, wait for the next change. Returns the last exit code.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Stopped

    former = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    child: subprocess.Popen[bytes] | None = None
    try:
        while True:
            stamps = watch.look()
            # Ctrl-C in the terminal is for this process only: it decides what stops first.
            child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            changed = _until_changed(child, watch, stamps)
            note(f"code changed: {', '.join(changed)}; the service starts again with its state")
            _end(child)
    except _Stopped:
        for each in former:
            signal.signal(each, signal.SIG_IGN)  # a second one changes nothing
        return _end(child) if child is not None else 0
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)


def _until_changed(child: subprocess.Popen[bytes], watch: Watch, stamps: Stamps) -> list[str]:
    """Wait for a change; return the names of the files that are other ones now."""
    told = False
    while (now := watch.look()) == stamps:
        if child.poll() is not None and not told:
            told = True
            note(f"the service ended with exit code {child.returncode}; the next change starts it")
        time.sleep(LOOK_S)  # between two looks at the files
    changed = [file.name for file in now if now[file] != stamps.get(file)]
    return sorted(changed)


def _end(child: subprocess.Popen[bytes]) -> int:
    """End gracefully: a last snapshot is written. The service has a deadline of its own."""
    child.terminate()
    code = child.wait()
    if child.stdin is not None:
        child.stdin.close()
    return code


Serve = Callable[[str], int]


def serving(app: str, options: Sequence[str]) -> Serve:
    """Return what `run_dev` is to serve: `dev` again, on the broker that runs already."""

    def serve(servers: str) -> int:
        command = [sys.executable, "-m", "snapreplay.api.cli", "dev", app, *options]
        return keep_running(watch, [*command, "--on-broker", servers])

    watch = Watch(app)
    return serve
