"""Texts of what does not match: both sides, and only ways that are open."""

from typing import Any

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.restore_mode import RestoreMode
from snapreplay.service.recovery import mismatch
from snapreplay.service.recovery.mismatch import AdvancedBatch
from snapreplay.state.digest import EMPTY, Digest
from tests.support.entries import ORIGIN, increment

OTHER = "2+code:00000000"


def place(**changed: Any) -> AdvancedBatch:
    found = increment(5, outputs_xxh64={"balances": 0xAB}, digest=Digest(1, 2, 3))
    fields: dict[str, Any] = {"mode": RestoreMode.REPLAY, "version": OTHER, "partition": 3}
    return AdvancedBatch(found, 50, **(fields | changed))


def problems(where: AdvancedBatch) -> list[SnapreplayError]:
    return [
        mismatch.outputs_differ(where, {}),
        mismatch.state_differs(where, EMPTY, {}),
        mismatch.not_proven(where),
        mismatch.replay_refused(where, SnapreplayError("refused")),
    ]


def test_changed_code_is_told_with_both_versions() -> None:
    """Whatever it was that did not match; the old one helps always."""
    for error in problems(place()):
        assert error.hint == mismatch.OLD_VERSION_FIRST
        assert type(error) is mismatch.CodeChanged
        assert f"app version {ORIGIN.app_version}, this is {OTHER}" in error.message


def test_outputs_by_the_same_code_are_told_with_topic_and_both_hashes() -> None:
    """In 16 hexadecimal digits; a topic to which nothing was sent has none."""
    error = mismatch.outputs_differ(place(version=ORIGIN.app_version), {})
    assert type(error) is mismatch.OutputsDiffer
    assert "its outputs to balances have fingerprint 00000000000000ab" in error.message
    assert "but none when replayed" in error.message
    assert mismatch.UNCOVERED in error.message


def test_changes_that_do_not_add_up_have_nothing_to_do_with_code() -> None:
    """The other mode is named, and no handler."""
    error = mismatch.state_differs(place(mode=RestoreMode.CHANGES), EMPTY, {})
    assert type(error) is mismatch.DigestMismatch
    assert "`--set restore.mode=replay`" in error.hint
    assert "deterministic" not in error.message
