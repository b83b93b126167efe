"""`dataclasses.replace` for millions of worlds, in a tenth of its time: no constructor runs."""

from typing import Any, TypeVar

from msgspec import Struct, structs

Made = TypeVar("Made")

TOLD = "_told"
"""Where what was made of a thing is kept, which is not true of its copies."""


def replace(made: Made, **changes: Any) -> Made:
    """Return a copy with other fields, of a Struct or of a dataclass without slots and `__post_init__`."""
    if isinstance(made, Struct):
        return structs.replace(made, **changes)
    fields = vars(made)
    assert changes.keys() <= fields.keys(), changes.keys() - fields.keys()
    copy: Made = object.__new__(type(made))
    copy.__dict__.update(fields, **changes)
    copy.__dict__.pop(TOLD, None)
    return copy
