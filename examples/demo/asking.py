"""A client of the service's HTTP API."""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

import httpx2

from examples.demo.failed import DemoFailed
from examples.demo.names import PARTITIONS
from examples.demo.service_process import ServiceProcess

POLL_S = 0.03
"""Between two questions: the service, its HTTP and this process have the same cores, and a question takes some 10 ms of
CPU."""
ANSWER_S = 5.0
COMMAND_S = 30.0

Json = dict[str, Any]
T = TypeVar("T")


class Asking:
    """Asks one service, which may die at any moment."""

    def __init__(self, service: ServiceProcess) -> None:
        self._service = service
        self._http = httpx2.Client(base_url=service.url, timeout=ANSWER_S, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str) -> Json | None:
        """Return the document; None while nothing listens or the service's loop is blocked, as when it starts."""
        try:
            answer = self._http.get(path)
        except httpx2.TransportError:
            return None
        return None if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE else _document(answer)

    def restore(self) -> Json | None:
        """Ask `GET /restore-status`.

        Raises:
            DemoFailed: a partition is FAILED; with its error and hint.
        """
        return _none_failed(self.get("/restore-status?scope=local"), "partitions")

    def partitions(self) -> Json | None:
        """Ask `GET /api/v1/partitions`.

        Raises:
            DemoFailed: as above.
        """
        return _none_failed(self.get("/api/v1/partitions?scope=local"), "items")

    def trigger_snapshot(self, reason: str) -> str:
        """Send `POST /trigger-snapshot` for all partitions; return the path of the operation."""
        return self._post("/trigger-snapshot", {"reason": reason})

    def adopt(self, partition: int, manifest_offset: int) -> str:
        """Send `POST /api/v1/partitions/{partition}/adopt`; return the path of the operation."""
        wanted = {"manifest_offset": manifest_offset}
        return self._post(f"/api/v1/partitions/{partition}/adopt", wanted)

    def ended(self, path: str, seconds: float) -> Json:
        """Wait for the end of an operation."""
        return self.until(
            lambda: self.get(path),
            lambda document: bool(document["state"] != "running"),
            seconds,
            f"the operation {path}",
        )

    def _post(self, path: str, body: Json) -> str:
        deadline = time.monotonic() + COMMAND_S
        while True:
            try:
                answer = self._http.post(path, json=body, timeout=COMMAND_S)
            except httpx2.TransportError as error:
                raise DemoFailed(f"POST {path}: {error}") from error
            if answer.status_code == HTTPStatus.ACCEPTED:
                return str(answer.headers["location"])
            if not _has_begun_nothing(answer) or time.monotonic() > deadline:
                raise DemoFailed(f"POST {path}: {answer.status_code} {answer.text}")

    def until(self, ask: Callable[[], Json | None], holds: Callable[[Json], bool], seconds: float, what: str) -> Json:
        """Ask until the answer is as wanted.

        Raises:
            DemoFailed: not in time, or the service has ended.
        """
        deadline = time.monotonic() + seconds
        document: Json | None = None
        while True:
            began = time.monotonic()
            document = ask()
            if document is not None and holds(document):
                return document
            self._service.check_running()
            if began > deadline:
                raise DemoFailed(f"no {what} within {seconds:.0f} s; {_in_short(document)}")
            time.sleep(POLL_S)  # between two questions


def all_live(restore: Json) -> bool:
    """Say whether a restore status has every partition of the topic, and all of them live."""
    return bool(restore["summary"]["all_live"]) and len(restore["partitions"]) == PARTITIONS


def _has_begun_nothing(answer: httpx2.Response) -> bool:
    """Say whether the request may be repeated: after another 503 a part of the operation may have begun."""
    if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
        return False
    try:
        problem = answer.json()
    except ValueError:  # of a proxy
        return False
    return str(problem.get("type", "")).endswith((":loop-blocked", ":too-many-requests"))


def _document(answer: httpx2.Response) -> Json:
    if answer.is_error:
        raise DemoFailed(f"GET {answer.url.path}: {answer.status_code} {answer.text}")
    document: Json = answer.json()
    return document


def _in_short(document: Json | None) -> str:
    """Return what a person needs of the last answer: phases and errors."""
    if document is None:
        return "the service does not answer"
    lines = []
    for each in document.get("partitions") or document.get("items") or ():
        error = each["error"]
        said = f": {error['kind']}: {error['message']}" if error else ""
        lines.append(f"partition {each['partition']} {each['phase']}{said}")
    return "\n".join(["last answer:", *(lines or [str(document)])])


def _none_failed(document: Json | None, items: str) -> Json | None:
    for each in document[items] if document else ():
        if each["phase"] == "failed":
            error = each["error"] or {}
            raise DemoFailed(f"partition {each['partition']} FAILED: {error.get('message')}\nhint: {error.get('hint')}")
    return document
