"""`python -m tests.chaos --seconds 300 --seed 7`: exit code 0 only with zero violations and everything healed."""

import argparse
import sys
from pathlib import Path

from tests.chaos.run import Plan, run
from tests.chaos.schedule import Kind
from tests.chaos.watch import restores_in_short

BUILD = Path(__file__).resolve().parents[2] / "build" / "chaos"
SHOWN = 20


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="of faults; then it heals")
    parser.add_argument("--seed", type=int, default=1, help="of the schedule and the load")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument(
        "--only", nargs="+", choices=list(Kind), default=list(Kind), metavar="KIND", help="draw only these"
    )
    parser.add_argument("--hold", type=float, metavar="SECONDS", help="hold each fault for so long")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    kinds = frozenset(kind for kind in Kind if kind in given.only)
    plan = Plan(given.seed, given.seconds, kinds, given.processes, given.partitions, given.hold)
    folder = BUILD / f"seed-{plan.seed}"
    outcome = run(plan, folder, say)
    say(outcome.verdict)
    findings = [*outcome.problems, *outcome.violations]
    for finding in findings[:SHOWN]:
        say(f"BAD: {finding}")
    if len(findings) > SHOWN:
        say(f"BAD: … and {len(findings) - SHOWN} more")
    say(f"faults: {', '.join(f'{count} {kind}' for kind, count in outcome.by_kind.items())}")
    say(restores_in_short(outcome.restores))
    say(", ".join(f"{count} {what}" for what, count in outcome.told.items()))
    say(f"report: {folder / 'report.md'}")
    if not outcome.good:
        say(f"logs:   {folder / 'logs'}")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
