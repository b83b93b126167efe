"""The schemas of custom resources, as their operators publish them: `python -m tests.deploy.crds CRD.yaml …` takes them
in, without their descriptions. `crds/README.md` has where they are from.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import yaml

FOLDER = Path(__file__).with_suffix("")
_KEPT = {"type", "properties", "required", "items", "enum", "minimum", "maximum", "minLength", "minItems", "maxItems"}
_KEPT |= {"pattern", "additionalProperties", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"}


def validate(resource: dict[str, Any]) -> None:
    """Compare a resource with the schema of its kind and version; a field that is not in it is refused.

    Raises:
        jsonschema.ValidationError: it does not fit.
    """
    schema = json.loads((FOLDER / f"{resource['kind']}.json").read_text(encoding="utf-8"))
    assert resource["apiVersion"] == schema["apiVersion"]
    jsonschema.validate(resource, schema)


def schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the version that is stored."""
    (version,) = (each for each in crd["spec"]["versions"] if each["storage"])
    schema = _strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # it is Kubernetes' own
    return {"apiVersion": f"{crd['spec']['group']}/{version['name']}", **schema}


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in schema.items() if name in _KEPT}
    if kept.pop("x-kubernetes-int-or-string", False):
        return {"type": ["integer", "string"]}
    if "(?i)" in kept.get("pattern", ""):  # Go takes it anywhere, Python at the beginning
        kept["pattern"] = "(?i)" + kept["pattern"].replace("(?i)", "")
    if "properties" in kept:
        kept["properties"] = {name: _strict(each) for name, each in kept["properties"].items()}
        if not kept.pop("x-kubernetes-preserve-unknown-fields", False):
            kept["additionalProperties"] = False
    for name in ("items", "additionalProperties"):
        if isinstance(kept.get(name), dict):
            kept[name] = _strict(kept[name])
    return kept


if __name__ == "__main__":
    for file in sys.argv[1:]:
        crd = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        text = json.dumps(schema_of(crd), separators=(",", ":"), sort_keys=True)
        (FOLDER / f"{crd['spec']['names']['kind']}.json").write_text(f"{text}\n", encoding="utf-8")
