"""The command line. docs/cli.md lists the commands and what each exit code means."""

from __future__ import annotations


def main() -> None:
    """Run `snapreplay`; end the process with a code of `exits.ExitCode`."""
    from snapreplay.api.cli.root import app

    app(prog_name="snapreplay")
