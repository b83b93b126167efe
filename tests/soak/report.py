"""The soak's report, as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.watch import Restore, restores_in_short
from tests.checker import Verdict
from tests.soak.sampling import Sample
from tests.soak.schedule import Kill
from tests.soak.trend import Trend


@dataclass
class Outcome:
    """A run. `records` were sent; `verdict` is the checker's."""

    seed: int
    minutes: float
    problems: list[str]
    samples: Sequence[Sample] = ()
    restores: Sequence[Restore] = ()
    told: Mapping[str, int] = field(default_factory=dict)
    records: int = 0
    kills: Sequence[Kill] = ()
    trends: Sequence[Trend] = ()
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def good(self) -> bool:
        grows = any(each.grows for each in self.trends)
        return self.verdict.good and not grows and not self.problems


def render(outcome: Outcome) -> str:
    proven = sum(each.proof_equal is True for each in outcome.restores)
    return "\n".join(
        [
            f"# Soak: {outcome.minutes:g} minutes, seed {outcome.seed}: {'good' if outcome.good else 'BAD'}",
            "",
            f"{outcome.records:,} records, {len(outcome.kills)} kills,"
            f" {len(outcome.samples)} samples, {restores_in_short(outcome.restores)},"
            f" {proven} proven by digest; {', '.join(f'{count} {what}' for what, count in outcome.told.items())}.",
            "",
            *(f"- BAD: {each}" for each in outcome.problems),
            "",
            "| process | samples | RSS MiB first / most / last | sockets | files | tasks |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *_lives(outcome.samples),
            "",
            "| trend | points | minutes | mean | per minute | rise | |",
            "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
            *map(_trend, outcome.trends),
            "",
            "```",
            str(outcome.verdict),
            "```",
        ]
    )


def _lives(samples: Sequence[Sample]) -> list[str]:
    lives: dict[str, list[Sample]] = {}
    for each in samples:
        lives.setdefault(f"{each.name}.{each.incarnation}", []).append(each)
    return [
        f"| {name} | {len(life)} | {life[0].rss_mib:.0f} / {max(s.rss_mib for s in life):.0f} / {life[-1].rss_mib:.0f}"
        f" | {_span(life, 'sockets')} | {_span(life, 'files')} | {_span(life, 'tasks')} |"
        for name, life in lives.items()
    ]


def _span(life: Sequence[Sample], name: str) -> str:
    values = [getattr(each, name) for each in life]
    return f"{min(values)}–{max(values)}"


def _trend(each: Trend) -> str:
    grows = "**grows**" if each.grows else ""
    return (
        f"| {each.what} | {each.count} | {each.minutes:.1f} | {each.mean:.2f} | {each.per_minute:+.3f}"
        f" | {each.rise:+.2f} | {grows} |"
    )
