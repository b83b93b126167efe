"""The command line. docs/cli.md lists the commands and what each exit code means."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run `snapreplay`; end the process with a code of `output.ExitCode`."""
    # Modules are no garbage, but to search them takes a tenth of the time until `run` is LIVE, with limits of its own.
    gc.set_threshold(100_000)
    from snapreplay.api.cli.running import plain_run, run_plainly

    given = plain_run(sys.argv[1:])
    if given is not None:
        sys.exit(run_plainly(given))
    from snapreplay.api.cli.root import app

    app(prog_name="snapreplay")
