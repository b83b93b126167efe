"""`python -m snapreplay.api.cli`, where the console script is not on the PATH."""

from snapreplay.api.cli import main

main()
