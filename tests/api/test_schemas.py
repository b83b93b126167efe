"""The models at the border: strict, closed, filled from the service's own objects."""

from __future__ import annotations

import msgspec
import pytest

from snapreplay.api import schema_types, schemas
from tests.support.fake_control import WRITTEN

MODELS = [
    model
    for model in vars(schemas).values()
    if isinstance(model, type) and issubclass(model, schema_types.Model)
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_models_are_strict_and_closed(model):
    """Every model refuses coercion and unknown fields."""
    assert model.model_config["strict"] is True
    assert model.model_config["extra"] == "forbid"


def test_new_words_do_not_break_a_status():
    """A state that is not in the documented list is shown, not a 500."""
    new = msgspec.structs.replace(WRITTEN, state="verified")
    assert schemas.Snapshot.model_validate(new).state == "verified"
