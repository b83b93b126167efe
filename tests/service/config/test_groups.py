"""The tables of settings by themselves."""

import ast
import inspect
from pathlib import Path

import pytest

from snapreplay.errors import UsageError
from snapreplay.service.config import groups

GROUPS = [group for _, group in inspect.getmembers(groups, inspect.isclass) if group.__module__ == groups.__name__]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_takes_its_defaults_and_nothing_absurd(group):
    """pydantic does not check defaults; a misspelt setting must not count as one; a negative time, size or count makes
    no sense anywhere."""
    assert group(**group().model_dump()) == group()
    with pytest.raises(UsageError, match="no_such_setting=1: unknown setting"):
        group(no_such_setting=1)
    for name, field in group.model_fields.items():
        if field.annotation in (int, float):
            with pytest.raises(UsageError):
                group(**{name: -1})


def test_every_default_is_named():
    """A type checker without pydantic's plugin takes a field with a positional default for a required one."""
    tree = ast.parse(Path(groups.__file__).read_text(encoding="utf-8"))
    fields = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "Field"]
    assert fields
    assert not [ast.unparse(field) for field in fields if field.args]
