"""deploy/observability/dashboard.json: its queries and its layout; Grafana itself is not there."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.dockerfile import ROOT
from tests.deploy.prometheus import promtool
from tests.deploy.promql import wrong_words

DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/observability/dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
VARIABLES: dict[str, dict[str, Any]] = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
TARGETS = [target for panel in PANELS for target in panel.get("targets", ())]


def filled(expression: str, app: str) -> str:
    """The expression as Grafana sends it, for one app."""
    return expression.replace("$__rate_interval", "2m").replace("$app", app).replace("$partition", ".*")


def test_each_query_asks_for_what_exists(tmp_path: Path) -> None:
    """Metrics and labels are those of the code, a legend names labels that there are, and Prometheus can read it."""
    queries = [each["query"] for each in VARIABLES.values() if each["type"] == "query"]
    for query in queries:
        ((metric, label),) = re.findall(r"^label_values\((.+), (\w+)\)$", query)
        assert wrong_words(f"group by ({label}) ({metric})") == []
    for target in TARGETS:
        legend = re.findall(r"{{(\w+)}}", target["legendFormat"])
        assert wrong_words(target["expr"] + f" == on ({', '.join(legend)}) 0" * bool(legend)) == []
    rules = [{"record": f"q{n}", "expr": filled(target["expr"], "ledger")} for n, target in enumerate(TARGETS)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yaml")
