"""What a recovery can ask for."""

import dataclasses
import typing

from snapreplay.service.core import effects


def test_every_effect_is_a_value_of_the_union():
    """Frozen, documented, and none is left out."""
    made = {each for each in vars(effects).values() if dataclasses.is_dataclass(each)}
    own = {each for each in made if each.__module__ == effects.__name__}
    assert own == set(typing.get_args(effects.Effect))
    for kind in own:
        assert kind.__doc__
        assert kind.__hash__, "frozen: equal ones have equal hashes"
