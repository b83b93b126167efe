"""The program of `make demo`: a real broker, 336,776 real flights, kill -9, recovery, and Spark's verdict.

    python -m examples.demo [--kills N] [--seed S] [--keep] [--bootstrap-servers HOST:PORT]

Exit code 0: everything in the table holds. 1: something does not, or could not be done. 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections.abc import Callable

from examples.demo.data import ROWS
from examples.demo.demo import Options, run
from examples.demo.failed import DemoFailed
from examples.demo.plan import KILLS_MAX
from examples.demo.show import Show
from snapreplay.devbroker.files import LocalBrokerUnavailable, ToolsMissing

INTERRUPTED = 130
INSTEAD = """on your own cluster they are not needed: `make demo ARGS="--bootstrap-servers=HOST:PORT --skip-audit"`"""


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code; nothing is left behind in any case."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` cleans up as Ctrl-C does
    with Show() as show:
        try:
            return 0 if run(options, show) else 1
        except DemoFailed as failed:
            show.say(f"the demo failed: {failed}", "bold red")
            return 1
        except ToolsMissing as missing:
            show.say(missing.message, "bold red")
            show.say(f"{missing.hint}; or {INSTEAD}")
            return 1
        except LocalBrokerUnavailable as unavailable:
            show.say(unavailable.message, "bold red")
            show.say(unavailable.hint)
            return 1
        except KeyboardInterrupt:
            show.say("interrupted: everything is removed")
            return INTERRUPTED


def _options(arguments: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="make demo",
        allow_abbrev=False,  # the Makefile looks for the whole names
        description="Kill a Kafka program again and again; prove that it forgot nothing and did nothing twice.",
    )
    parser.add_argument("--kills", type=_within(KILLS_MAX), default=3, metavar="N", help=f"1 to {KILLS_MAX}, default 3")
    parser.add_argument("--seed", type=int, default=None, help="of the kill moments; default: random, and printed")
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C; print the URLs")
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="use this cluster, with topics under unique names that are removed at the end (with --keep they stay)",
    )
    parser.add_argument("--rows", type=_within(ROWS), default=None, metavar="N", help="only the first N flights")
    parser.add_argument("--skip-audit", action="store_true", help="without Spark")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    return Options(
        kills=given.kills,
        seed=seed,
        keep=given.keep,
        bootstrap_servers=given.bootstrap_servers,
        rows=given.rows,
        audit=not given.skip_audit,
    )


def _within(most: int) -> Callable[[str], int]:
    """Return a parser for whole numbers from 1 to `most`."""

    def number(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {most:,}")
        return int(text)

    return number


if __name__ == "__main__":
    sys.exit(main())
