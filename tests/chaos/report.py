"""The report on a run and what it showed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.schedule import Fault, Kind
from tests.chaos.timeline import Entry, Injected
from tests.chaos.watch import Restore, restores_in_short


@dataclass
class Outcome:
    """One run. `seconds`: asked for; `settle_seconds`: until everything was live and the lag 0."""

    seed: int
    seconds: float
    processes: int
    partitions: int
    settings: Mapping[str, object]
    planned: Sequence[Fault]
    injected: Sequence[Injected] = ()
    entries: Sequence[Entry] = ()
    restores: Sequence[Restore] = ()
    told: Mapping[str, int] = field(default_factory=dict)
    settle_seconds: float | None = None
    problems: Sequence[str] = ()
    violations: Sequence[str] = ()
    unchecked: Sequence[str] = ()
    counts: dict[str, int] = field(default_factory=dict)
    verdict: str = "not reached"

    @property
    def good(self) -> bool:
        return not self.problems and not self.violations and self.settle_seconds is not None

    @property
    def carried_out(self) -> list[Injected]:
        return [one for one in self.injected if not one.error]

    @property
    def by_kind(self) -> dict[Kind, int]:
        return dict(sorted(Counter(one.fault.kind for one in self.carried_out).items()))


def write(outcome: Outcome, folder: Path) -> Path:
    path = folder / "report.md"
    path.write_text(as_markdown(outcome))
    return path


def as_markdown(outcome: Outcome) -> str:
    sections = (_summary, _kinds, _restores, _findings, _faults, _timeline)
    return "\n\n".join(section(outcome) for section in sections) + "\n"


def _summary(outcome: Outcome) -> str:
    settled = outcome.settle_seconds
    lines = [
        f"# Chaos, seed {outcome.seed}: {'good' if outcome.good else 'BAD'}",
        "",
        f"- {outcome.seconds:g} s, {outcome.processes} processes, {outcome.partitions} partitions",
        f"- settings: {', '.join(f'{name}={value}' for name, value in outcome.settings.items())}",
        f"- faults: {len(outcome.carried_out)} carried out, {len(outcome.injected) - len(outcome.carried_out)} failed,"
        f" {len(outcome.planned)} planned",
        f"- settled: {'never' if settled is None else f'after {settled:.1f} s'}",
        *(f"- {name}: {count:,}" for name, count in (*outcome.told.items(), *outcome.counts.items())),
        f"- violations: {len(outcome.violations)}, problems: {len(outcome.problems)}",
    ]
    return "\n".join(lines)


def _kinds(outcome: Outcome) -> str:
    rows = [f"| {kind} | {count} |" for kind, count in outcome.by_kind.items()]
    return "\n".join(["## Faults by kind", "", "| kind | carried out |", "| --- | --- |", *rows])


def _restores(outcome: Outcome) -> str:
    lines = ["## Restores", "", restores_in_short(outcome.restores), ""]
    lines += ["| at s | process | partition | seconds | attempts | mode | from | digest |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for one in sorted(outcome.restores, key=lambda restore: restore.at_s):
        origin = "copy" if one.copied else "snapshot" if one.from_snapshot else "genesis"
        proof = {True: "equal", False: "DIFFERS", None: "none"}[one.proof_equal]
        lines.append(
            f"| {one.at_s:.1f} | {one.process} | {one.partition} | {one.seconds:.3f} | {one.attempts}"
            f" | {one.mode or '-'} | {origin}{', fallback' if one.fallback else ''} | {proof} |"
        )
    return "\n".join(lines)


def _findings(outcome: Outcome) -> str:
    lines = ["## Verdict", "", "```", outcome.verdict.strip(), "```"]
    for title, found in (
        ("Problems", outcome.problems),
        ("Violations", outcome.violations),
        ("Not checked", outcome.unchecked),
        (
            "Faults that could not be carried out",
            [f"#{one.fault.number} {one.fault.kind}: {one.error}" for one in outcome.injected if one.error],
        ),
    ):
        if found:
            lines += ["", f"### {title}", "", *(f"- {one}" for one in found)]
    return "\n".join(lines)


def _faults(outcome: Outcome) -> str:
    lines = ["## Faults", "", "| # | kind | begun s | healed s | what |", "| --- | --- | --- | --- | --- |"]
    for one in outcome.injected:
        healed = "never" if one.healed_s is None else f"{one.healed_s:.1f}"
        what = "; ".join(one.hit).replace("|", "/")
        lines.append(f"| {one.fault.number} | {one.fault.kind} | {one.begun_s:.1f} | {healed} | {what} |")
    return "\n".join(lines)


def _timeline(outcome: Outcome) -> str:
    lines = [f"{entry.at_s:8.2f}  {entry.source:<8}{entry.text}" for entry in outcome.entries]
    return "\n".join(["## Timeline", "", "```", *lines, "```"])
