"""Adds the packages in api/static/vendor/ to bills of materials, and checks them for known vulnerabilities.

    python requirements/vendored.py [--ask ANSWER-FILE --osv URL] BILL…

The table "In the page" of docs/internals/dependencies.md lists the packages by their npm names. `--ask` sends them to a
database with the API of OSV, and writes its answer to the file. The exit code is 1 if a vulnerability is known, or if
the database does not answer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "api" / "static" / "vendor"
ANSWER_SECONDS = 30
_NAMED = r"^\| (?P<title>[\w -]+?)(?: \((?P<name>[\w-]+)\))? "
_ROW = re.compile(_NAMED + r"\| (?P<version>[\d.]+) \| (?P<licence>[\w.-]+) \|", re.MULTILINE)


class Vendored(NamedTuple):
    """An npm package that is served with the page."""

    folder: str
    name: str
    version: str
    licence: str

    @property
    def purl(self) -> str:
        return f"pkg:npm/{self.name}@{self.version}"

    def component(self) -> dict[str, Any]:
        """Return it as CycloneDX has it, with the hash of each file."""
        files = sorted(each for each in (VENDOR / self.folder).rglob("*") if each.is_file())
        return {
            "type": "library",
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "purl": self.purl,
            "licenses": [{"license": {"id": self.licence}}],
            "components": [_file(each) for each in files],
        }


def vendored() -> list[Vendored]:
    """Read the table."""
    text = (ROOT / "docs" / "internals" / "dependencies.md").read_text(encoding="utf-8")
    table = text.partition("\n## In the page\n")[2].partition("\n## ")[0]
    return [_package(row) for row in _ROW.finditer(table)]


def _package(row: re.Match[str]) -> Vendored:
    folder = row["title"].lower().replace(" ", "-")
    return Vendored(folder, row["name"] or folder, row["version"], row["licence"])


def _file(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    name = path.relative_to(ROOT).as_posix()
    return {"type": "file", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}


def add(bill: Path, packages: list[Vendored]) -> None:
    """Add the packages to a bill, once."""
    document = json.loads(bill.read_text(encoding="utf-8"))
    names = {each.purl for each in packages}
    others = [each for each in document.get("components", []) if each.get("purl") not in names]
    document["components"] = [*others, *(each.component() for each in packages)]
    bill.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def ask(osv: str, packages: list[Vendored]) -> dict[str, list[str]]:
    """Return the ids of the known vulnerabilities of each package.

    Raises:
        OSError, ValueError: the database does not answer, or its answer is not valid.
    """
    body = json.dumps({"queries": [{"package": {"purl": each.purl}} for each in packages]}).encode()
    request = urllib.request.Request(osv, body, {"Content-Type": "application/json"})  # noqa: S310 - whoever calls names it
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - the same
        results = json.load(answer)["results"]
    return {
        each.purl: [found["id"] for found in result.get("vulns", [])]
        for each, result in zip(packages, results, strict=True)
    }


def _say(text: str) -> None:
    sys.stderr.write(f"sbom: {text}\n")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bills", nargs="*", type=Path, metavar="BILL")
    parser.add_argument("--ask", type=Path, metavar="ANSWER-FILE")
    parser.add_argument("--osv", default="", metavar="URL")
    given = parser.parse_args(arguments)
    packages = vendored()
    for bill in given.bills:
        add(bill, packages)
    if given.ask is None:
        return 0
    try:
        found = ask(given.osv, packages)
    except (OSError, ValueError, KeyError) as error:
        _say(f"cannot check api/static/vendor/ for vulnerabilities: {given.osv}: {error}")
        return 1
    given.ask.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    vulnerable = {purl: ids for purl, ids in found.items() if ids}
    for purl, ids in vulnerable.items():
        _say(f"{purl} is vulnerable ({', '.join(ids)}): replace it by a newer version")
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
