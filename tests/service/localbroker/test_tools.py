"""The local broker's java. How it is found: tests/snapshots/test_java.py."""

from pathlib import Path

import pytest

from snapreplay.service.localbroker.errors import LocalBrokerUnavailable
from snapreplay.service.localbroker.tools import find_java


def test_without_java_the_local_broker_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the local broker's own error, which names the package."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(LocalBrokerUnavailable, match="The local broker needs Java 17") as caught:
        find_java()
    assert caught.value.hint == "apt-get install default-jre-headless"
