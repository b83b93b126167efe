"""The image as a folder, made once."""

from __future__ import annotations

import pytest

from tests.deploy.dockerfile import ROOT, Image, of_the_service, perform


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Every step of the Dockerfile, performed into an empty folder: hashes checked, nothing of `dev`."""
    made = Image(tmp_path_factory.mktemp("image"))
    for stage in of_the_service((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        perform(stage, made)
    return made
