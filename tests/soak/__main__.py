"""`python -m tests.soak --minutes 15 --seed 7`: exit code 0 when nothing grew and every rule held."""

import argparse
import json
import shutil
import sys
from pathlib import Path

from tests.soak.report import render
from tests.soak.run import Plan, run

BUILD = Path(__file__).resolve().parents[2] / "build" / "soak"


def say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1, help="of the kills and the load")
    parser.add_argument("--standbys", type=int, default=0, help="warm copies of each partition: 0 or 1")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="a kill each time, at least 10 s apart")
    given = parser.parse_args()
    folder = BUILD / f"seed-{given.seed}"
    outcome = run(Plan(given.seed, given.minutes, given.standbys, given.every), folder, say)
    report = render(outcome)
    sys.stdout.write(report + "\n")
    if outcome.good:
        shutil.rmtree(folder)
    else:
        say(f"logs and journal: {folder}")
    (BUILD / f"seed-{given.seed}.md").write_text(report + "\n")
    samples = [json.dumps(each._asdict()) + "\n" for each in outcome.samples]
    (BUILD / f"seed-{given.seed}.samples.jsonl").write_text("".join(samples))
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
