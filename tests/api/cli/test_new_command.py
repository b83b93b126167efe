"""A project that `new` makes runs as it is."""

import os
import subprocess
import sys

import pytest

from tests.support.deadlines import scaled


@pytest.mark.whole
def test_the_tests_of_a_new_project_pass(invoke, tmp_path, broker):
    """Those without and those with a broker, against this checkout."""
    made = invoke("new", "my-ledger")
    assert made.exit_code == 0, made.output
    assert "created my-ledger/my_ledger.py" in made.stdout
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "my-ledger",
        env={**os.environ, "SNAPREPLAY_TEST_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=scaled(100),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_nothing_is_overwritten(invoke, tmp_path):
    """A folder of that name stays as it is."""
    (tmp_path / "my-ledger").mkdir()
    refused = invoke("new", "my-ledger")
    assert refused.exit_code == 2
    assert "exists already: nothing was written" in refused.stderr
    assert list((tmp_path / "my-ledger").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["json", "class", "pytest", "__main__", "1st", "a b", "../up", "größe", "", "class.x", "x" * 101]
)
def test_a_name_that_cannot_be_imported_is_refused(invoke, tmp_path, name):
    """One that the hint describes is taken."""
    refused = invoke("new", name)
    assert refused.exit_code == 2, refused.output
    assert "cannot name a folder, an app id and a module" in refused.stderr
    assert list(tmp_path.iterdir()) == []
    assert invoke("new", "a-b_1").exit_code == 0
