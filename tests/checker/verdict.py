"""The verdict of the checker: one violation per broken rule and place, counts of what was looked at, and what was
not."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

SHOWN = 5
"""Violations in the table, per check."""
KEPT = 1_000
"""Violations kept in words per check; all are counted."""


class Check(StrEnum):
    """The rules, as issue and report number them."""

    EXACTLY_ONCE = "1 exactly once"
    ATOMICITY = "2 atomicity"
    CHAIN = "3 chain"
    FENCE = "4 fence"
    STATE = "5 restored state"
    OUTCOMES = "6 outcome honesty"
    SNAPSHOTS = "7 snapshots"
    ORDER = "8 order"
    HEALED = "9 healed"


@dataclass(frozen=True, order=True)
class Violation:
    """One broken rule at one place.

    Attributes:
        where: "topic-partition-offset", or "topic-partition" when it is about a whole log.
        what: both sides, in words.
    """

    check: Check
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.check}: {self.where}: {self.what}"


@dataclass
class Verdict:
    """The answer of `verify`.

    Attributes:
        violations: at most 1,000 in words per check; `totals` has how many there were.
        totals: check → violations found.
        counts: what was looked at, for example "input records", "increments", "snapshots".
        unchecked: what could not be decided, with the reason; empty for a log that is whole.
    """

    violations: list[Violation] = field(default_factory=list)
    totals: Counter[Check] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    unchecked: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Nothing broken."""
        return not self.totals

    def add(self, check: Check, where: str, what: str) -> None:
        self.totals[check] += 1
        if self.totals[check] <= KEPT:
            self.violations.append(Violation(check, where, what))

    def __str__(self) -> str:
        """A table of the checks, what was looked at, what was not, and the first violations."""
        found = sum(self.totals.values())
        words = "all held" if self.good else f"{found} violations"
        lines = [f"verdict: {words}", ""]
        lines += [f"  {check:<18} {self.totals[check] or 'held'}" for check in Check]
        lines += ["", *(f"  {name:<26} {count:>12,}" for name, count in sorted(self.counts.items()))]
        if self.unchecked:
            lines += ["", "not checked:", *(f"  {reason}" for reason in self.unchecked)]
        for check in sorted(self.totals):
            shown = [each for each in self.violations if each.check == check][:SHOWN]
            lines += ["", *(f"  {each}" for each in shown)]
            if self.totals[check] > len(shown):
                lines.append(f"  {check}: … and {self.totals[check] - len(shown)} more")
        return "\n".join(lines)
