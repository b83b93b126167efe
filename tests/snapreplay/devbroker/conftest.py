"""The common ground of the tests of the local broker."""

import tempfile
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which brokers started by the test make their temporary directories.

    Logs that a failing broker keeps on purpose land here, too.
    """
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    return place
