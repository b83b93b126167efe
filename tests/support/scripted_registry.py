"""A schema registry over HTTP that a test can break: it has schemas, and answers as scripted."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NOT_FOUND = {"schemas": 40403, "subjects": 40401}


class ScriptedRegistry:
    """Attributes:
    schemas: by id; each as its document.
    broken: what it answers in place of the truth: (status, body); None: the truth.
    gate: requests wait for it.
    asked: the paths so far.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.broken: tuple[int, str] | None = None
        self.compatible = True
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []

    def add(self, schema: object, subject: str = "s", kind: str = "AVRO", **more: Any) -> int:
        """Register a schema; its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        document = {"schema": text, "schemaType": kind, **more}
        found = next((each for each, known in self.schemas.items() if known == document), len(self.schemas) + 1)
        self.schemas[found] = document
        if found not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(found)
        return found

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        what, *words = path.partition("?")[0].strip("/").split("/")
        if what == "schemas" and int(words[1]) in self.schemas:
            return 200, self.schemas[int(words[1])]
        if what == "compatibility":
            return 200, {"is_compatible": self.compatible}
        if what == "subjects":
            subject, ids = words[0], self.subjects.get(words[0], [])
            if method == "GET" and int(words[2]) <= len(ids):
                found = ids[int(words[2]) - 1]
                return 200, {"id": found, "version": int(words[2]), "subject": subject, **self.schemas[found]}
            if method == "POST" and len(words) == 2:
                if not self.compatible:
                    return 409, {"error_code": 409, "message": "the field amount is gone"}
                return 200, {"id": self.add(body["schema"], subject, body.get("schemaType", "AVRO"))}
            same = [each for each in ids if self.schemas[each]["schema"] == body["schema"]] if body else []
            if same:
                return 200, {"id": same[0], "version": 1, "subject": subject, "schema": body["schema"]}
        return 404, {"error_code": NOT_FOUND[what], "message": "not here"}


@contextmanager
def scripted_registry() -> Iterator[ScriptedRegistry]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            registry.asked.append(self.path)
            registry.headers.append(dict(self.headers))
            registry.gate.wait(60)
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
            status, answer = registry.broken or registry.answer(self.command, self.path, body)
            data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer  # noqa: N815 - the base class looks for these names

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry = ScriptedRegistry(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield registry
    finally:
        registry.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
