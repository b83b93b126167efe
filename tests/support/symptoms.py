"""The Symptom line of each section of docs/runbook.md, as its alert says it.

`python -m tests.support.symptoms` puts them there.
"""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "observability" / "alerts.yaml"
RUNBOOK = ROOT / "docs" / "runbook.md"
_LINE = re.compile(r"\*\*Symptom\.\*\* .*\n\n")


def rules() -> list[dict[str, Any]]:
    """Return the alert rules, in order."""
    found = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in found["groups"] for rule in group["rules"] if "alert" in rule]


def symptom(rule: dict[str, Any]) -> str:
    """Write what is seen when this alert fires: "A *critical* alert after 1m: partition PARTITION is …"."""
    said = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), rule["annotations"]["description"])
    said = re.sub(r"\{\{ \$value[^}]*\}\}", "N", said)
    after = f", after {rule['for']}" if "for" in rule else ""
    return f"**Symptom.** {rule['labels']['severity'].capitalize()}{after}: {said}"


def written(text: str) -> str:
    """Return the runbook with the symptom of each alert at the head of its section."""
    for rule in rules():
        head = f"## {rule['alert']}\n\n"
        before, rest = text.split(head)
        text = f"{before}{head}{symptom(rule)}\n\n{_LINE.sub('', rest, count=1) if _LINE.match(rest) else rest}"
    return text


if __name__ == "__main__":
    RUNBOOK.write_text(written(RUNBOOK.read_text(encoding="utf-8")), encoding="utf-8")
