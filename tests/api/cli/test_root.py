"""The command tree: version, help, errors."""

import subprocess
import sys

import pytest

import snapreplay
from snapreplay.api.cli import main
from snapreplay.api.cli.explaining import REACTIONS
from snapreplay.api.cli.output import message_of
from snapreplay.errors import SnapreplayError
from snapreplay.service.dead_letters import OtherRecord
from snapreplay.service.recovery.follower import DigestMismatch

HEAVY = ("aiokafka", "fastapi", "httpx2", "pyspark", "rich", "uvicorn")


def test_version_imports_nothing_heavy():
    """`version` is fast because no client, server, Spark or terminal library is imported."""
    code = (
        "import sys\nfrom snapreplay.api.cli.root import app\napp(['version'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_unknown_command_is_usage_with_the_nearest(invoke):
    """A typing error: exit code 2 and the command that was meant."""
    result = invoke("restore-statu")
    assert result.exit_code == 2
    assert "restore-status" in result.stderr


def test_error_is_one_block_without_traceback(invoke):
    """What an operator sees of an error: message and hint, the class's exit code, no traceback but with --debug."""
    result = invoke("run", "no_such_module:app")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: app module 'no_such_module' was not found")
    assert "\n hint: " in result.stderr
    assert "Traceback" not in result.output

    result = invoke("--debug", "run", "no_such_module:app")
    assert isinstance(result.exception, SnapreplayError)


def test_main_ends_the_process(monkeypatch, capsys):
    """The entry point of the distribution runs the tree and exits with its code."""
    monkeypatch.setattr(sys, "argv", ["snapreplay", "version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines()[0] == f"snapreplay {snapreplay.__version__}"


@pytest.mark.parametrize(
    ("error", "says"),
    [(DigestMismatch, "A partition that has it is FAILED"), (OtherRecord, "A command or a call ends with it")],
)
def test_an_error_is_explained_by_its_name(invoke, error, says):
    """What is printed behind the message of an error can be looked up: meaning, reaction, what is safe."""
    result = invoke("explain", error.__name__)
    assert result.exit_code == 0
    meaning, reaction, safe = result.stdout.strip().split("\n\n")
    assert meaning in " ".join((error.__doc__ or "").split())
    assert reaction == REACTIONS[error.reaction]
    assert says in reaction
    assert safe.startswith("Safe: ")
    assert message_of(error("x")) == f"x [{error.__name__}]"


def test_a_mistyped_error_is_answered_with_the_nearest(invoke):
    """A typing error, as with a command."""
    mistyped = invoke("explain", "DigestMissmatch")
    assert mistyped.exit_code == 2
    assert "did you mean DigestMismatch?" in mistyped.stderr
