"""The one table at the end."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.demo.record import Told, Verdict
from examples.demo.show import comeback_text


def print_table(console: Console, told: Told, verdicts: list[Verdict]) -> None:
    """Print numbers, every restart and every verdict, and below them what differed."""
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _numbers(told):
        table.add_row(name, text)
    table.add_section()
    for number, restart in enumerate(told.restarts, 1):
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


def _numbers(told: Told) -> list[tuple[str, str]]:
    first = told.first_start
    return [
        ("records", f"{told.records:,}"),
        ("kills", f"{len(told.restarts)} by SIGKILL (--seed {told.seed})"),
        ("full snapshots", f"{len(told.snapshots)}"),
        (
            "throughput",
            f"{told.loaded / max(told.wall_s, 1e-9):,.0f} records/s over {told.wall_s:.1f} s with all"
            f" the kills, {told.loaded / max(told.live_s, 1e-9):,.0f} records/s while LIVE",
        ),
        ("first start", comeback_text(first) if first else "-"),
    ]
