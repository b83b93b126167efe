"""The option `restore-status --watch`: bars in a terminal, elsewhere a line or a JSON document per change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from snapreplay.api.cli import restore_view
from snapreplay.api.cli.client import Client, Json, ServiceUnreachable
from snapreplay.api.cli.exits import ExitCode
from snapreplay.api.cli.output import Format, console, print_json

if TYPE_CHECKING:
    from rich.console import Console

POLL_S = 0.2
PATIENCE_S = 30.0  # a service that was killed is started again meanwhile


def follow(client: Client, output: Format) -> ExitCode:
    """Follow until every partition is live (OK), or those that are not have failed (FINDINGS).

    Raises:
        ServiceUnreachable: at once if it never answered, otherwise after half a minute of silence.
    """
    out = console()
    if output is Format.JSON:
        shown: AbstractContextManager[Callable[[Json], None]] = nullcontext(_each_change())
    elif out.is_terminal:
        shown = _Bars(out)
    else:
        shown = nullcontext(_each_line())
    with shown as show:
        status: Json = {}
        for status in _statuses(client):
            show(status)
            if _settled(status):
                break
    return ExitCode.OK if status["summary"]["all_live"] else ExitCode.FINDINGS


def _statuses(client: Client) -> Iterator[Json]:
    yield client.restore_status()
    answered_at = time.monotonic()
    while True:
        time.sleep(POLL_S)  # between two questions to the service
        try:
            status = client.restore_status()
        except ServiceUnreachable:
            if time.monotonic() - answered_at > PATIENCE_S:
                raise
            continue
        answered_at = time.monotonic()
        yield status


def _settled(status: Json) -> bool:
    phases = set(status["summary"]["partitions_by_phase"])
    return bool(phases) and phases <= {"live", "failed"}


def _each_change() -> Callable[[Json], None]:
    last: list[Json] = [{}]

    def show(status: Json) -> None:
        if status != last[0]:
            last[0] = status
            print_json(status)

    return show


def _each_line() -> Callable[[Json], None]:
    last: dict[int, str] = {}
    hinted: dict[int, str | None] = {}

    waiting = [""]

    def show(status: Json) -> None:
        if status.get("waiting_for", "") != waiting[0]:
            waiting[0] = status.get("waiting_for", "")
            print(f"waiting: {waiting[0]}" if waiting[0] else "begun", flush=True)
        for partition in status["partitions"]:
            number, line = partition["partition"], restore_view.line(partition)
            if last.get(number) != line:
                last[number] = line
                print(line, flush=True)
            hint = restore_view.hint_line(partition)
            if hint is not None and hinted.get(number) != hint:
                print(hint, flush=True)
            hinted[number] = hint

    return show


class _Bars(AbstractContextManager[Callable[["Json"], None]]):
    """One bar per partition; troubles are printed above them, each once."""

    def __init__(self, out: Console) -> None:
        self._progress = Progress(
            TextColumn("partition {task.description}"),
            BarColumn(),
            TextColumn("{task.fields[percent]:>7}"),
            TextColumn("{task.fields[text]}", markup=False),
            console=out,
        )
        self._tasks: dict[int, TaskID] = {}
        self._told: set[str] = set()

    def __enter__(self) -> Callable[[Json], None]:
        self._progress.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _show(self, status: Json) -> None:
        if status.get("waiting_for", ""):
            self._tell(f"waiting: {status.get('waiting_for')}")
        for partition in status["partitions"]:
            self._update(partition)
            for line in restore_view.troubles(partition):
                self._tell(line)

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._progress.console.print(Text(line))

    def _update(self, partition: Json) -> None:
        number = partition["partition"]
        if number not in self._tasks:
            self._tasks[number] = self._progress.add_task(
                str(number), total=100.0, text="", percent=""
            )
        self._progress.update(
            self._tasks[number],
            completed=partition["percent"] or 0.0,
            percent=restore_view.percent(partition) or "-",
            text=restore_view.line(partition).removeprefix(f"partition {number} "),
        )
