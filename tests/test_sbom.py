"""The bill of what is served with the page: whole, exact, and asked about."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("vendored", ROOT / "requirements" / "vendored.py")
assert _spec is not None
assert _spec.loader is not None
sbom: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sbom)


class Database:
    """A database on the loopback address that speaks as OSV does, with what it knows."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}
        self.body: bytes | None = None
        database = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
                found = [database.known.get(each["package"]["purl"], []) for each in asked]
                results = [{"vulns": [{"id": each} for each in ids]} if ids else {} for ids in found]
                self.send_response(200)
                self.end_headers()
                self.wfile.write(database.body or json.dumps({"results": results}).encode())

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/querybatch"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_each_folder_has_a_row_and_the_version_of_its_files():
    """A package that is exchanged without its row is found; its licence is one that `make sbom` allows."""
    packages = sbom.vendored()
    assert {each.folder for each in packages} == {each.name for each in sbom.VENDOR.iterdir()}
    script = (ROOT / "requirements" / "sbom.sh").read_text(encoding="utf-8")
    allowed = re.findall(r"ALLOWED='(.*)'", script)[0].split(";")
    for each in packages:
        texts = [file.read_text(encoding="utf-8") for file in (sbom.VENDOR / each.folder).rglob("*.js")]
        assert any(each.version in text for text in texts), each
        assert any(each.licence.startswith(name) for name in allowed), each


def test_a_bill_has_each_package_once_with_its_files(tmp_path):
    """As npm names it; what was in the bill before stays."""
    bill = tmp_path / "service.cdx.json"
    bill.write_text('{"bomFormat": "CycloneDX", "components": [{"name": "msgspec", "purl": "pkg:pypi/msgspec@1"}]}')
    for _ in range(2):
        assert sbom.main([str(bill)]) == 0
    components = {each["purl"]: each for each in json.loads(bill.read_text())["components"]}
    assert set(components) == {"pkg:pypi/msgspec@1", *(each.purl for each in sbom.vendored())}
    plots = next(each for purl, each in components.items() if purl.startswith("pkg:npm/uplot@"))
    assert plots["licenses"] == [{"license": {"id": "MIT"}}]
    for file in plots["components"]:
        content = (ROOT / file["name"]).read_bytes()
        assert file["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]


def test_a_known_vulnerability_and_no_answer_are_failures(tmp_path, database, capsys):
    """Each by its name; an answer is kept."""
    answer = tmp_path / "page.vulnerabilities.json"
    asked = ["--ask", str(answer), "--osv", database.url]
    assert sbom.main(asked) == 0
    assert set(json.loads(answer.read_text())) == {each.purl for each in sbom.vendored()}
    purl = sbom.vendored()[0].purl
    database.known[purl] = ["GHSA-1234"]
    assert sbom.main(asked) == 1
    assert f"{purl} is vulnerable (GHSA-1234)" in capsys.readouterr().err
    database.body = b"<html>"
    assert sbom.main(asked) == 1
    database.body = b'{"results": []}'
    assert sbom.main(asked) == 1
    assert sbom.main([*asked[:-1], "http://127.0.0.1:1/"]) == 1
    assert "nobody says" in capsys.readouterr().err
