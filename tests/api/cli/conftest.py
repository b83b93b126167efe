"""Running commands as a user does, in this process."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from snapreplay.api.cli.root import app

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Invoke]:
    """`invoke("restore-status", "--url", url)` in an empty directory, without the user's settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    # `run` and `dev` make the root logger write to this invocation's standard error, which is closed after it.
    monkeypatch.setattr(logging.root, "handlers", logging.root.handlers[:])
    for name in ("SNAPREPLAY_HTTP__PORT", "SNAPREPLAY_HTTP__HOST"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
        _forget_modules_of(tmp_path)
        words = [str(each) for each in arguments]
        return CliRunner().invoke(app, words, input=stdin, prog_name="snapreplay")

    yield run
    _forget_modules_of(tmp_path)


def _forget_modules_of(folder: Path) -> None:
    """A command is a process of its own for its user: it imports the app anew."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def nobody_there() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"127.0.0.1:{closed.getsockname()[1]}"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A small app in the working directory."""
    path = tmp_path / "cli_ledger.py"
    path.write_text(
        "from snapreplay import App, MapState, Topic\n"
        "payments = Topic('payments')\n"
        "app = App('ledger', inputs=[payments], state=lambda: MapState(str, int, default=int))\n"
        "@app.handler(payments)\n"
        "def on_payment(record, state, out):\n"
        "    state[record.key] += record.value\n"
    )
    return path
