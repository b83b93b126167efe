"""The history of the group, as a process keeps it."""

from datetime import UTC, datetime

from snapreplay.service.core.assignment import Share
from snapreplay.service.core.group_changes import GroupHistory
from snapreplay.service.core.peers import Peer

AT = datetime(2026, 11, 26, tzinfo=UTC)


def share(*names: str, **more: tuple[str, ...]) -> Share:
    peers = tuple(Peer(name, f"ledger-{name}", "host", "") for name in names)
    return Share((0,), peers=peers, **more)  # type: ignore[arg-type]  # `absent` alone


def seen(history: GroupHistory, which: str) -> list[list[str]]:
    """The process ids in one field of each change, newest first."""
    return [[member.process_id for member in getattr(change, which)] for change in history.changes]


def test_who_joins_and_who_goes_is_told_with_the_generation() -> None:
    """The first generation that is seen has nobody who joined. How a process went is known from what was heard of it,
    before or afterwards; else it is only gone."""
    history = GroupHistory()
    history.note(AT, 3, "m", share("a", "b"))
    history.note(AT, 4, "m", share("a", "b", "c", "d"))
    history.suspected("b")
    history.note(AT, 5, "m", share("a"))
    history.ended("c")
    assert [each.generation for each in history.changes] == [5, 4, 3]
    assert [each.members for each in history.changes] == [1, 4, 2]
    assert seen(history, "joined") == [[], ["c", "d"], []]
    assert seen(history, "left") == [["c"], [], []]
    assert seen(history, "expelled") == [["b"], [], []]
    assert seen(history, "gone") == [["d"], [], []]
    assert history.changes[0].partitions == (0,)
