"""The display for the user: a live panel in a terminal, plain lines in a pipe, and the one table at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.demo.plan import Kill
from examples.demo.record import Adoption, Comeback, RunLog, Takeover, Verdict

Json = dict[str, Any]

PLAIN_COLUMNS = 160
PLAIN_EVERY_S = 1.0
PANEL_EVERY_S = 0.05
RATE_OVER_S = 0.5


class Show:
    """Lines that stay, and below them, in a terminal, what happens now. Use by `with`."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(highlight=False)
        if not console.is_terminal:
            console.width = PLAIN_COLUMNS
        self.console = console
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._plain_line = ""
        self._rate: float | None = None
        self._measured = (self._began, 0)

    def __enter__(self) -> Show:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, line: str, style: str = "") -> None:
        """Print a line that stays, with the seconds since the beginning."""
        seconds = time.monotonic() - self._began
        self.console.print(Text(f"{seconds:6.1f} s  ", "dim") + Text(line, style), soft_wrap=True)

    def loading(self, count: int) -> None:
        line = f"loading: {count:,} flights"
        self._now(lambda: Text(line), line)

    def judging(self, step: str) -> None:
        self._now(lambda: Text(f"judging: {step}"), f"judging: {step}", every_s=0.0)

    def processing(self, committed: int, total: int, partitions: list[Json], pointed: int) -> None:
        """Show `partitions` as `GET /api/v1/partitions` lists them; `pointed` snapshots exist by now."""
        entries = sum(each["state_entries"] for each in partitions)
        size_bytes = sum(each["state_bytes"] for each in partitions)
        line = (
            f"{committed:,} of {total:,} records, {self._rate_text(committed)},"
            f" lag {total - committed:,}, state {entries:,} entries ({size_bytes / 1024:,.0f} KiB),"
            f" snapshots {pointed}"
        )
        self._now(lambda: Group(_partitions(partitions), Text(line)), line)

    def restoring(self, restore: Json | None) -> None:
        """Show a restore status; None while there is no answer."""
        if restore is None or not restore["partitions"]:
            self._now(lambda: Text("restore: waiting for the assignment"), "")
            return
        line = "; ".join(restore_line(each) for each in restore["partitions"])
        # Show each change: a restore lasts only as long as a few lines.
        self._now(lambda: _restores(restore["partitions"]), f"restore: {line}", every_s=0.0)

    def killed(self, number: int, kill: Kill, committed: int, struck: str) -> None:
        self._measured, self._rate = (time.monotonic(), committed), None
        self.say(
            f"kill {number}: SIGKILL after {committed:,} records, {struck}; started again at once, by {kill.mode}",
            "bold red",
        )

    def came_back(self, number: int, mode: str, comeback: Comeback) -> None:
        self.say(f"restart {number} by {mode}: {comeback_text(comeback)}", "green")

    def taken_over(self, takeover: Takeover) -> None:
        self.say(
            f"SIGKILL of the first process: the second one is LIVE with its {len(takeover.moved)} partitions after"
            f" {1000 * takeover.seconds:,.0f} ms, {len(takeover.proven)} digests equal",
            "green",
        )

    def adopted(self, adoption: Adoption) -> None:
        if adoption.why:
            self.say(f"partition {adoption.partition}: not adopted: {adoption.why}", "bold red")
        else:
            self.say(
                f"POST /api/v1/partitions/{adoption.partition}/adopt: Spark's snapshot of batch {adoption.batch}"
                f" is adopted, {adoption.entries:,} entries hashed",
                "green",
            )

    def _rate_text(self, committed: int) -> str:
        now = time.monotonic()
        since, count = self._measured
        if now - since >= RATE_OVER_S:
            self._rate = (committed - count) / (now - since)
            self._measured = now, committed
        return "-" if self._rate is None else f"{self._rate:,.0f} records/s"

    def _now(self, panel: Callable[[], RenderableType], line: str, every_s: float = PLAIN_EVERY_S) -> None:
        """Show `panel` in a terminal, else `line`, unless it is empty or the same as before."""
        now = time.monotonic()
        if self.console.is_terminal:
            if now - self._shown_at >= PANEL_EVERY_S:
                self._live.update(panel(), refresh=True)
                self._shown_at = now
        elif line and line != self._plain_line and now - self._shown_at >= every_s:
            self.say(line)
            self._shown_at, self._plain_line = now, line


def comeback_text(comeback: Comeback) -> str:
    """Return how long each part of a recovery took, and what proves it."""
    phases = ", ".join(f"{phase} {seconds:.3f}" for phase, seconds in comeback.phases.items())
    replayed = f", {comeback.replayed:,} records replayed" if comeback.replayed else ""
    modes = ", ".join(f"{count} by {mode}" for mode, count in comeback.modes.items())
    return (
        f"LIVE in {comeback.live_s:.2f} s (HTTP after {comeback.http_s:.2f} s, partitions after"
        f" {comeback.owned_s:.2f} s; {phases});"
        f" {modes or 'nothing to bring forward'}{replayed}, {comeback.proven} digests equal"
    )


def restore_line(partition: Json) -> str:
    """Show one partition of a restore status in a few words, such as "0 loading 50 % 1,024/2,048 bytes"."""
    parts = [f"{partition['partition']} {partition['phase']}"]
    progress = partition["progress"]
    if progress:
        parts.append(f"{progress['percent']:.0f} % {progress['current']:,}/{progress['target']:,} {progress['unit']}")
        if progress["eta_seconds"] is not None:
            parts.append(f"ETA {progress['eta_seconds']:.2f} s")
    return " ".join(parts)


def _partitions(partitions: list[Json]) -> Table:
    table = _table("partition", "phase", "batch", "position", "lag", "entries", "snapshot")
    for each in partitions:
        (source,) = each["inputs"] or [{"position": 0, "lag": None}]
        snapshot = each["snapshot"]
        table.add_row(
            *map(str, (each["partition"], each["phase"], each["batch"])),
            f"{source['position']:,}",
            "-" if source["lag"] is None else f"{source['lag']:,}",
            f"{each['state_entries']:,}",
            f"batch {snapshot['batch']} {snapshot['state']}" if snapshot else "-",
        )
    return table


def _restores(partitions: list[Json]) -> Table:
    table = _table("partition", "phase", "percent", "progress", "ETA", "entries", "records", "mode")
    for each in partitions:
        progress = each["progress"]
        eta = progress["eta_seconds"] if progress else None
        table.add_row(
            str(each["partition"]),
            each["phase"],
            "-" if each["percent"] is None else f"{each['percent']:.0f} %",
            f"{progress['current']:,} / {progress['target']:,} {progress['unit']}" if progress else "-",
            "-" if eta is None else f"{eta:.2f} s",
            f"{each['entries']:,}",
            f"{each['records_replayed']:,}",
            each["mode"] or "-",
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in {"phase", "mode"} else "right")
    return table


# ------------------------------------------------------------------ the table at the end


def print_table(console: Console, run_log: RunLog, verdicts: list[Verdict]) -> None:
    """Print numbers, every restart and every verdict, and below them what differed."""
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _numbers(run_log):
        table.add_row(name, text)
    table.add_section()
    for number, restart in enumerate(run_log.restarts, 1):
        back = restart.comeback
        how = comeback_text(back) if back else "killed again before it was LIVE"
        text = f"killed after {restart.killed_at_records:,} records, {restart.struck}\n{how}"
        table.add_row(f"restart {number} by {restart.kill.mode}", text)
    table.add_section()
    for verdict in verdicts:
        style = "green" if verdict.holds else "bold red"
        answer = Text("yes" if verdict.holds else "NO", style)
        table.add_row(verdict.name, answer + Text(f"  {verdict.detail}", "default"))
    console.print(table)
    for verdict in verdicts:
        for finding in verdict.findings:
            console.print(Text(f"{verdict.name}: {finding}", "red"), soft_wrap=True)


def _numbers(run_log: RunLog) -> list[tuple[str, str]]:
    first = run_log.first_start
    return [
        ("records", f"{run_log.records:,}"),
        ("kills", f"{len(run_log.restarts)} by SIGKILL (--seed {run_log.seed})"),
        ("full snapshots", f"{len(run_log.snapshots)}"),
        (
            "throughput",
            f"{run_log.loaded / max(run_log.wall_s, 1e-9):,.0f} records/s over {run_log.wall_s:.1f} s with all"
            f" the kills, {run_log.loaded / max(run_log.live_s, 1e-9):,.0f} records/s while LIVE",
        ),
        ("first start", comeback_text(first) if first else "-"),
    ]
