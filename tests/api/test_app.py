"""The application as a whole: names, documents, bodies."""

import pytest

from snapreplay.api.app import BODY_BYTES_MAX, create_app
from tests.support.fake_control import NOW, FakeControl, Local

DOCUMENTED = create_app(Local(FakeControl())).openapi()["paths"]
OPERATIONS = [(method.upper(), path) for path, each in DOCUMENTED.items() for method in each]


def test_no_page_fetches_scripts_from_elsewhere():
    """Where this runs there is often no way out, and what came in would not be checked."""
    app = create_app(Local(FakeControl()), now=lambda: NOW)
    assert app.openapi_url == "/openapi.json"
    assert (app.docs_url, app.redoc_url) == (None, None)


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("declared", [True, False])
def test_a_huge_body_is_413(client, control, declared):
    """Its length may be declared or not: to parse 300 MB would stop the heartbeats of the same loop for too long."""
    pieces = [b"[" * BODY_BYTES_MAX, b"["]
    body = b"".join(pieces) if declared else iter(pieces)
    response = client.post("/trigger-snapshot", content=body, headers=JSON)
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["type"] == "urn:snapreplay:problem:body-too-large"
    assert problem["detail"] == "the body has more than 262144 bytes"
    assert control.operations() == []


def test_the_largest_valid_request_is_read(client):
    """All the partitions and the longest reason that a request may hold, written as wastefully as JSON allows."""
    partitions = (" " * 9 + "0,") * 9_999 + "0"
    reason = "\\ud83d\\ude00" * 500
    body = f'{{"partitions": [{partitions}], "reason": "{reason}"}}'
    response = client.post("/trigger-snapshot", content=body, headers=JSON)
    assert response.status_code == 202
