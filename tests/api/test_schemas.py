"""The models at the border: strict, closed, filled from the service's own objects."""

from __future__ import annotations

import msgspec
import pytest
from pydantic import ValidationError

from snapreplay.api import schemas
from snapreplay.service.control.status import Progress
from tests.support.fake_control import WRITTEN

MODELS = [
    model
    for model in vars(schemas).values()
    if isinstance(model, type) and issubclass(model, schemas.Model)
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_models_are_strict_and_closed(model):
    """Every model refuses coercion and unknown fields."""
    assert model.model_config["strict"] is True
    assert model.model_config["extra"] == "forbid"


def test_times_are_utc_in_rfc_3339():
    """Unix seconds of the service become UTC times with a Z."""
    shown = schemas.Snapshot.model_validate(WRITTEN).model_dump(mode="json")
    assert shown["started_at"] == "2026-11-18T11:05:40Z"


def test_progress_is_spelled_from():
    """`from` is a Python keyword, not ours to show to the world as `from_`."""
    progress = schemas.Progress.model_validate(Progress("bytes", 1, 2, 3))
    shown = progress.model_dump(mode="json", by_alias=True)
    assert (shown["from"], shown["remaining"], shown["percent"]) == (1, 1, 50.0)


def test_new_words_do_not_break_a_status():
    """A state that is not in the documented list is shown, not a 500."""
    new = msgspec.structs.replace(WRITTEN, state="verified")
    assert schemas.Snapshot.model_validate(new).state == "verified"


@pytest.mark.parametrize("value", [False, "1", 1.5, None, -1])
def test_partition_number_is_a_number(value):
    """In a body nothing but a non-negative int is a partition."""
    with pytest.raises(ValidationError):
        schemas.SnapshotRequest.model_validate({"partitions": [value]})
