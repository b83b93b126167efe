"""Tests of a release: wheel and sdist work in an empty environment of each Python."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from snapreplay import __version__
from tests.support.deadlines import scaled
from tests.test_packaging import ROOT, build

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = re.findall(r":: (3\.\d+)", " ".join(PROJECT["classifiers"]))
# As a user would after `pip install`: every public name, an app, and its tests without a broker.
TRIED = """
import importlib, snapreplay
from snapreplay import testing
import ledger

for name in snapreplay.__all__:
    getattr(snapreplay, name)
harness = testing.Harness(ledger.app)
harness.feed(ledger.payments, key="a", value={"amount": 3})
print([sent.value for sent in harness.outputs(ledger.balances)])
testing.check(ledger.app, [testing.record(ledger.payments, key="a", value={"amount": n}) for n in range(5)])
"""


@pytest.mark.whole
@pytest.mark.timeout(400)  # pip downloads what an installation needs
@pytest.mark.parametrize(("version", "kind"), [(PYTHONS[0], "sdist"), *((each, "wheel") for each in PYTHONS[1:])])
def test_an_installation_works(version: str, kind: str, tmp_path: Path) -> None:
    """In an empty environment the command runs, all names are there, and an app is tested without a broker. The wheel
    that pip makes of the sdist is that of the tree: see test_packaging."""
    bin_ = tmp_path / "venv" / "bin"
    subprocess.run([_python(version), "-m", "venv", "--without-pip", bin_.parent], check=True, env=_env(version))
    locked = re.findall(r"^[a-z0-9-]+==[^\\\n]*", (ROOT / "requirements/service.lock").read_text(), re.MULTILINE)
    (tmp_path / "locked.txt").write_text("\n".join(locked))
    pip = (sys.executable, "-m", "pip", "--python", bin_ / "python")
    _run(*pip, "install", "-q", "--no-compile", "-c", tmp_path / "locked.txt", build(kind, ROOT, tmp_path))
    assert _run(bin_ / "snapreplay", "version", cwd=tmp_path).startswith(f"snapreplay {__version__}\n")
    (tmp_path / "ledger.py").write_bytes((ROOT / "examples" / "ledger.py").read_bytes())
    (tmp_path / "tried.py").write_text(TRIED)
    assert _run(bin_ / "python", "tried.py", cwd=tmp_path) == "[{'balance': 3}]\n"


def _env(version: str = "") -> dict[str, str]:
    """Leave this Python's variables out; a shim of pyenv runs a version only if it is named."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | (
        {"PYENV_VERSION": version} if version else {}
    )


def _python(version: str) -> str:
    found = f"python{version}"
    try:
        subprocess.run([found, "-c", "import venv"], check=True, env=_env(version), capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"there is no {found} here")
    return found


def _run(program: str | Path, *words: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [program, *words], cwd=cwd, env=_env(), capture_output=True, text=True, timeout=scaled(300), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
