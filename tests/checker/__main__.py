"""`python -m tests.checker --bootstrap-servers … --app-id …`: exit code 0 when every rule held."""

import argparse
import json
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.checker.judge import verify


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.checker", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--app-id", required=True)
    parser.add_argument("--inputs", nargs="+", default=(), metavar="TOPIC")
    parser.add_argument("--outputs", nargs="+", default=(), metavar="TOPIC")
    parser.add_argument("--outcomes", type=Path, help="file or folder of journals")
    parser.add_argument("--urls", nargs="+", default=(), help="of all processes: one owner each")
    parser.add_argument("--deadline-seconds", type=float, default=60.0)
    parser.add_argument("--not-healed", action="store_true", help="the processes are gone")
    parser.add_argument("--report", type=Path, help="write the verdict as JSON, too")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    began = time.monotonic()
    verdict = verify(
        given.bootstrap_servers,
        given.app_id,
        outcomes=given.outcomes,
        deadline_seconds=given.deadline_seconds,
        urls=given.urls,
        inputs=given.inputs,
        outputs=given.outputs,
        healed=not given.not_healed,
    )
    seconds = time.monotonic() - began
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sys.stdout.write(f"{verdict}\n\n  {seconds:.1f} s, {peak_mib} MiB at most\n")
    if given.report:
        # Not `asdict` of the whole: it would count the items of a Counter.
        violations = [asdict(each) for each in verdict.violations]
        told = {**vars(verdict), "violations": violations, "good": verdict.good}
        told |= {"seconds": seconds, "peak_mib": peak_mib}
        given.report.write_text(json.dumps(told, indent=1) + "\n")
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
