"""`run` without the command tree is `run`."""

import subprocess
import sys

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.api.cli import main, running

PLAIN = [
    ["a.py"],
    ["--init", "a.py"],
    ["a.py", "--init", "--from", "latest"],
    ["a.py", "--no-wait"],
    ["a.py", "b.py", "--no-wait"],
    ["a.py", "--no-wait", "--wait"],
    ["a.py", "--set", "batch.records_max=7", "--set=kafka.client.id=a=b", "--http-port", "1", "--http-port=2"],
    ["a.py", "--log-format", "json", "--log-level", "warning", "--bootstrap-servers", "k:1", "--config", "own.toml"],
]
FOR_THE_TREE = [
    ["run"],
    ["run", "--help"],
    ["run", "a.py", "--no-wait", "b.py"],
    ["run", "a.py", "--inti"],
    ["run", "a.py", "--from", "middle"],
    ["run", "a.py", "--http-port", "x"],
    ["run", "a.py", "--http"],
    ["run", "--", "a.py"],
    ["--debug", "run", "a.py"],
    ["init", "a.py"],
]


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_it_is_called_as_by_the_tree(invoke, monkeypatch, tmp_path, words):
    """The same app, settings and options, however they are given."""
    calls = []
    (tmp_path / "own.toml").write_text("[batch]\nrecords_max = 3\n")
    monkeypatch.setattr(
        "snapreplay.app.load.load_app", lambda name: App(name, inputs=[Topic("in")], state=lambda: MapState(str, int))
    )
    monkeypatch.setattr(App, "validate", lambda _: None)
    monkeypatch.setattr(
        running, "run_apps", lambda apps, *given: calls.append(([each.app_id for each in apps], *given))
    )
    given = running.plain_run(["run", *words])
    assert given is not None
    running.run_plainly(given)
    assert invoke("run", *words).exit_code == 0
    plainly, by_the_tree = calls
    assert plainly == by_the_tree


@pytest.mark.parametrize("words", FOR_THE_TREE, ids=" ".join)
def test_the_tree_is_asked_for_everything_else(words):
    """It explains what is wrong."""
    assert running.plain_run(words) is None


@pytest.mark.parametrize(("words", "code"), [(["run", "no_such:app"], 2), (["run", "no_such:app", "--set", "x"], 2)])
def test_an_error_is_printed_as_by_the_tree(invoke, monkeypatch, capsys, words, code):
    """Message, hint, exit code, and no traceback."""
    by_the_tree = invoke(*words)
    monkeypatch.setattr(sys, "argv", ["snapreplay", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == by_the_tree.exit_code == code
    assert capsys.readouterr().err == by_the_tree.stderr


def test_an_interrupted_start_ends_without_a_traceback(tmp_path):
    """Ctrl-C while the app's module is imported."""
    (tmp_path / "slow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    command = [sys.executable, "-m", "snapreplay.api.cli", "run", str(tmp_path / "slow.py")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "Aborted.\n")
