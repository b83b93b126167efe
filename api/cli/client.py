"""A running service over HTTP, for the commands that ask one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ssl import SSLContext
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import httpx2

from snapreplay.api.cli.output import ExitCode, OperationRefused
from snapreplay.errors import RetryableError, UsageError
from snapreplay.service.control.operations import Command

NOT_FOUND, NO_TYPE = 404, "about:blank"  # together: an unknown path
TIMEOUT_S = 8.0  # the API answers within 100 ms; a process that it has to ask for the answer is given up after 5 s
PROBE_TIMEOUT_S = 5.0
LOG_TIMEOUT_S = 10.0  # the service itself gives up after 8

Json = dict[str, Any]
COMMANDS = {
    "/restore-status": "restore-status",
    "/api/v1/operations": "operations",
    "/api/v1/processes": "processes",
    "/healthz": "health",
    "/readyz": "health --ready",
}
"""The commands that make the requests which hints of the service name."""
_REQUEST = re.compile(r"GET (/(?:api/v1/)?[a-z-]+)[^ ;,]*")


class ServiceUnreachable(RetryableError):
    """Nothing answers at the URL, or a program that is not a snapreplay service.

    Safe: The command itself has changed nothing. If the service has received the request, it may still carry it out:
    `snapreplay operations` shows it.
    """


class Client:
    """Asks the service at `url`; use as a context manager.

    Every call raises ServiceUnreachable (no service answered) or OperationRefused (the answer is a
    problem document).
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, context: SSLContext | None = None) -> None:
        """Take `headers`, which are sent with every request, and how https is spoken; None: as on this machine."""
        self.url = url
        # No proxy from the environment: the service is on this machine or in this network.
        verify = True if context is None else context
        self._http = httpx2.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False, verify=verify)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def restore_status(self, scope: str | None = None) -> Json:
        """Ask for the partitions of the app or of the process alone; None: of the app, if it has peers."""
        return self._ask("GET", f"/restore-status{_query({'scope': scope})}", "partitions")

    def carry_out(self, command: Command) -> Json:
        return self._ask(command.method, command.target, "parts", body=command.body)

    def items(self, path: str) -> Json:
        """Ask for a list: its `items`, and what is said beside them."""
        return self._ask("GET", f"/api/v1/{path}", "items")

    def processes(self) -> list[Json]:
        return list(self.items("processes")["items"])

    def partition_history(self, partition: int) -> Json:
        return self._ask("GET", f"/api/v1/partitions/{partition}/history", "ownerships", timeout_s=LOG_TIMEOUT_S)

    def operation(self, operation_id: str) -> Json:
        return self._ask("GET", f"/api/v1/operations/{operation_id}", "parts")

    def state_key(self, store: str, key: str, *, partition: int | None = None, stale: bool = False) -> Json:
        asked = _query({"partition": partition, "stale": stale or None})
        return self._ask("GET", f"/api/v1/state/{_store(store)}/{_segment(key)}{asked}", "items")

    def state_entries(self, store: str, partition: int, asked: Json) -> Json:
        return self._ask("GET", f"/api/v1/state/{_store(store)}{_query({'partition': partition, **asked})}", "items")

    def key_history(self, store: str, key: str, partition: int, limit: int) -> Json:
        asked = _query({"partition": partition, "limit": limit})
        path = f"/api/v1/key-history/{_store(store)}/{_segment(key)}{asked}"
        return self._ask("GET", path, "items", timeout_s=LOG_TIMEOUT_S)

    def probe(self, path: str) -> Json:
        """Ask a probe for its document, whether it says ok or failing."""
        return self._ask("GET", path, "checks", timeout_s=PROBE_TIMEOUT_S)

    def _ask(
        self, method: str, path: str, member: str, *, body: Json | None = None, timeout_s: float = TIMEOUT_S
    ) -> Json:
        """Ask; `member` is in the answer, unless that is a problem document or not from a snapreplay service."""
        try:
            response = self._http.request(method, path, json=body, timeout=timeout_s)
        except httpx2.ReadTimeout as error:
            raise self._late(method, path, timeout_s) from error
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            hint = "start one with `snapreplay run APP`, or give its address with --http-port or --url"
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                hint = "name the authority of its certificate: http.tls_ca_file in the settings"
            elif "[SSL:" in str(error):
                hint = f"if it has no certificate: `--url http{self.url.removeprefix('https')}`"
            elif isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError) and self.url.startswith("http:"):
                hint = f"if it has a certificate: `--url https{self.url.removeprefix('http')}`"
            raise ServiceUnreachable(f"no service answers at {self.url}: {error}", hint=hint, url=self.url) from error
        document = _document(response)
        if member in document:
            return document
        if not response.is_error or "title" not in document:
            raise ServiceUnreachable(
                f"{self.url} is not a snapreplay service: {method} {path} returned {response.status_code}"
                f" {response.headers.get('content-type', 'without a content type')}",
                hint="give the address of the service with --http-port or --url",
                url=self.url,
            )
        if response.status_code == NOT_FOUND and document.get("type") == NO_TYPE:
            raise self._no_such_path(path)
        raise _refusal(response.status_code, document)

    def _late(self, method: str, path: str, timeout_s: float) -> ServiceUnreachable:
        message = f"the service at {self.url} has not answered {method} {path} within {timeout_s:g} s"
        hint = f"`snapreplay health --url {self.url}` says whether it is suspended"
        if method != "GET":
            message += "; it may or may not have done it"
            hint += f", and `snapreplay operations --url {self.url}` what it has begun"
        return ServiceUnreachable(message, hint=hint, url=self.url)

    def _no_such_path(self, path: str) -> OperationRefused:
        where = urlsplit(self.url)
        hint = "the service is of another version than this command; run the command of that version"
        if where.path:
            hint = f"give the address alone: `--url {where.scheme}://{where.netloc}`"
        return OperationRefused(
            f"the service at {self.url} knows no {path} behind this address", hint=hint, code=ExitCode.REFUSED
        )


def _segment(text: str) -> str:
    """Return a text as one segment of a path. Raises UsageError: it is no text."""
    try:
        quoted = quote(text, safe="")
    except UnicodeEncodeError as error:
        raise UsageError("the key holds bytes that are not UTF-8", hint="give a key of bytes in base64") from error
    return quoted.replace(".", "%2E") if quoted.strip(".") == "" else quoted  # else it would be a step in the path


def _store(name: str) -> str:
    return name_segment(name, "name of a store")


def name_segment(text: str, what: str) -> str:
    """Return a name as one segment of a path. Raises UsageError: the service would take it for another path."""
    if text.strip(".") == "" or "/" in text:
        raise UsageError(f"{text!r} is no {what}: it is empty, only dots, or has a slash")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise UsageError(f"{text!r} is no {what}: it is not UTF-8") from error


def _query(asked: Json) -> str:
    given = {name: str(value).lower() if value is True else value for name, value in asked.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _document(response: httpx2.Response) -> Json:
    """Read the JSON document; empty if the answer is none."""
    try:
        document = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _refusal(status: int, problem: Json) -> OperationRefused:
    match status:
        case 503:
            code = ExitCode.UNREACHABLE
        case 400 | 401 | 404 | 415 | 422:
            code = ExitCode.REFUSED
        case _:
            code = ExitCode.FINDINGS
    message = str(problem.get("detail") or problem.get("title") or f"HTTP status {status}")
    hint = _REQUEST.sub(_command, str(problem.get("hint", "")))
    if status == 401:
        hint = "name a file with the token of the service: `--token-file FILE`, or http.token_file in the settings"
    return OperationRefused(message, hint=hint, code=code, problem=problem)


def _command(request: re.Match[str]) -> str:
    command = COMMANDS.get(request[1])
    return f"`snapreplay {command}`" if command else request[0]
