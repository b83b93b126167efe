"""The key file of the settings."""

import pytest

from snapreplay.errors import UsageError
from snapreplay.service.config.key_file import seals_of
from snapreplay.service.config.settings import Settings
from snapreplay.snapshots.format.seal import OFF, SealPolicy


def test_the_keys_are_those_of_the_file(tmp_path):
    """With the policy of the settings; messages name the file."""
    file = tmp_path / "keys"
    file.write_text(f"a {'11' * 32}\n", "utf-8")
    found = seals_of(Settings.model_validate({"seal": {"key_file": str(file)}}))
    assert (list(found.keys), found.policy, found.source) == (["a"], SealPolicy.REQUIRED, str(file))


def test_without_a_file_nothing_is_sealed():
    """It is off by default."""
    assert seals_of(Settings()) is OFF


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_refused_at_start(tmp_path, content):
    """By its name; the app does not start without its seal."""
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=f"seal.key_file={file} cannot be read"):
        seals_of(Settings.model_validate({"seal": {"key_file": str(file)}}))
