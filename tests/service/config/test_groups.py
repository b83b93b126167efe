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
def test_a_group_takes_its_defaults_and_nothing_absurd(group):
    """pydantic does not check defaults; a misspelt setting must not count as one; a negative time, size or count makes
    no sense anywhere."""
    assert group(**group().model_dump()) == group()
    with pytest.raises(ValidationError, match="extra_forbidden"):
        group(no_such_setting=1)
    for name, field in group.model_fields.items():
        if field.annotation in (int, float):
            with pytest.raises(ValidationError):
                group(**{name: -1})
