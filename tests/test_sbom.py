"""The bill of what is served with the page: whole and exact."""

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("vendored", ROOT / "requirements" / "vendored.py")
assert _spec is not None
assert _spec.loader is not None
sbom: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sbom)


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
