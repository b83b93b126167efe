"""A scratch copy is as the checkout before and after each trial."""

import subprocess
import sys

from tests.mutants.mutant import ROOT, Scratch

PATH = "snapreplay/counted.py"


def test_a_scratch_copy_is_used_again_and_runs_what_it_holds():
    """Also where what was compiled of the other text lies beside it."""
    scratch = Scratch()
    command = [sys.executable, "-c", "from snapreplay import counted; print(counted.__doc__)"]

    def said():
        done = subprocess.run(command, cwd=scratch.root, env=scratch.environment, capture_output=True, check=True)
        return done.stdout.decode().strip()

    before = said()
    for text in ("first", "other"):
        with scratch.changed({PATH: f'"""{text}"""\n'}):
            assert said() == text
        assert said() == before
    left = (scratch.root / PATH).read_text()
    scratch.close()
    assert left == (ROOT / PATH).read_text()
