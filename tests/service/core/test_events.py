"""What can happen in a recovery, and what it can ask for."""

import dataclasses
import typing

import pytest

from snapreplay.service.core import effects, events


@pytest.mark.parametrize(("module", "union"), [(events, events.Event), (effects, effects.Effect)])
def test_each_is_a_value_and_none_is_left_out_of_the_union(module, union):
    """One outside of it would never be matched, and mypy could not say so. Equal courses give equal recoveries."""
    made = {each for each in vars(module).values() if dataclasses.is_dataclass(each)}
    own = {each for each in made if each.__module__ == module.__name__}
    assert own == set(typing.get_args(union))
    assert all(kind.__hash__ for kind in own), "frozen: equal ones have equal hashes"
