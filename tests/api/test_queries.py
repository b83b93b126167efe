"""The bodies of requests that take none. What else a request may have: test_routes.py."""

from typing import Any

import pytest
from starlette.types import Message

from tests.api.test_routes import JSON, problem

WITHOUT_BODY = [
    ("GET", "/restore-status"),
    ("HEAD", "/restore-status"),
    ("GET", "/api/v1/operations"),
    ("GET", "/api/v1/state/default/ada"),
    ("POST", "/api/v1/partitions/2/retry"),
    ("POST", "/api/v1/partitions/0/resume"),
    ("DELETE", "/api/v1/savepoints/before-42"),
]


@pytest.mark.parametrize(("method", "path"), WITHOUT_BODY)
def test_a_body_where_none_is_taken_is_refused(client, control, method, path):
    """It would be left out silently, as an unknown member would be elsewhere. An empty one asks for nothing."""
    as_usual = client.request(method, path).status_code
    done = len(control.operations())
    for content in (b'{"partitions": [0]}', b"x", b"[]", iter([b'{"reason":', b' ""}'])):
        answer = client.request(method, path, content=content, headers=JSON)
        assert answer.status_code == 422
        if method != "HEAD":
            assert problem(answer, 422, "invalid-request")["detail"] == "body: this path takes none"
    assert len(control.operations()) == done
    for content in (b"", b"{}", b" { }\n", b"null"):
        assert client.request(method, path, content=content, headers=JSON).status_code in (as_usual, 409)
    assert client.request(method, path, headers={"Content-Length": "0"}).status_code in (as_usual, 409)


def test_a_body_that_is_refused_reaches_no_other_request(client, monkeypatch):
    """Answers are given again as long as nothing has happened: that to a request with a body is not, and it gets none
    that was made for one without."""
    source, kept = client.app.state.context[0], list[Any]()
    look = source.look

    async def same():
        kept.append(kept[0] if kept else await look())
        return kept[0]

    monkeypatch.setattr(source, "look", same)
    for path in ("/api/v1/snapshots", "/api/v1/processes"):
        asked = [
            client.request("GET", path, json=body).status_code for body in ({"limit": 1}, None, {"limit": 1}, None)
        ]
        assert asked == [422, 200, 422, 200]


async def test_whoever_goes_away_within_such_a_body_is_no_defect_of_the_service(client):
    """Else each of them, and each slow one whose connection is closed, would leave a traceback in the log."""

    class Leaving:
        """A client that sends the first byte of ninety."""

        answers: list[Message]

        def __init__(self) -> None:
            self.answers = []
            self._sends = iter([{"type": "http.request", "body": b"{", "more_body": True}])

        async def receive(self) -> Message:
            return next(self._sends, {"type": "http.disconnect"})

        async def send(self, answer: Message) -> None:
            self.answers.append(answer)

    for method, path in WITHOUT_BODY:
        headers = [(b"host", b"localhost"), (b"content-length", b"90")]
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
        leaving = Leaving()
        await client.app(scope, leaving.receive, leaving.send)
        assert leaving.answers[0]["status"] == 422
