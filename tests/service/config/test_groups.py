"""The tables of settings by themselves."""

import inspect

import pytest
from pydantic import ValidationError

from snapreplay.service.config import groups

GROUPS = [
    group
    for _, group in inspect.getmembers(groups, inspect.isclass)
    if issubclass(group, groups.SettingsGroup) and group is not groups.SettingsGroup
]


@pytest.mark.parametrize("group", GROUPS)
def test_defaults_are_inside_their_own_bounds(group):
    """pydantic does not check defaults: this does."""
    defaults = group().model_dump()
    assert group(**defaults) == group()


@pytest.mark.parametrize("group", GROUPS)
def test_unknown_names_are_refused(group):
    """A misspelt setting must not count as the default."""
    with pytest.raises(ValidationError, match="extra_forbidden"):
        group(no_such_setting=1)


@pytest.mark.parametrize("group", GROUPS)
def test_numbers_with_a_unit_are_bounded_below(group):
    """A negative time, size or count makes no sense anywhere."""
    for name, field in group.model_fields.items():
        if field.annotation in (int, float):
            with pytest.raises(ValidationError):
                group(**{name: -1})
