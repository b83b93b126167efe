"""The tables of settings by themselves."""

import inspect

import msgspec
import pytest

from snapreplay.errors import UsageError
from snapreplay.service.config import groups

GROUPS = [group for _, group in inspect.getmembers(groups, inspect.isclass) if group.__module__ == groups.__name__]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_takes_its_defaults_and_nothing_absurd(group):
    """Defaults are not checked; a misspelt setting must not count as one; a negative time, size or count makes no sense
    anywhere, but -1, which is "never" for one."""
    assert group(**msgspec.structs.asdict(group())) == group()
    with pytest.raises(UsageError, match="no_such_setting: unknown setting"):
        group(no_such_setting=1)
    for name, default in msgspec.structs.asdict(group()).items():
        if type(default) in {int, float}:
            with pytest.raises(UsageError):
                group(**{name: -2})
            assert group(**{name: f" {default} "}) == group()
        elif isinstance(default, bool):
            assert group(**{name: " on " if default else "False"}) == group()


def test_a_group_cannot_be_changed():
    """What was checked stays so. A changed copy keeps what was given."""
    group = groups.RestoreSettings(mode="changes")
    with pytest.raises(AttributeError):
        group.mode = "replay"  # type: ignore[misc]  # a checker sees it, too
    other = group.replaced(concurrency=3)
    assert (other.mode, other.concurrency, group.concurrency) == ("changes", 3, 2)
    assert [other.was_given(name) for name in ("mode", "concurrency", "retry_backoff_ms")] == [True, True, False]
