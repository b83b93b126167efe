"""The command line where the console script is not on the PATH: `python -m snapreplay.api.cli`."""

from snapreplay.api.cli import main

main()
