"""Prometheus and promtool, as the machine has them or as `make prometheus` has unpacked them."""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode

import pytest
import yaml

from snapreplay.devbroker.free_ports import free_ports
from tests.support.deadlines import scaled

UNPACKED = Path(__file__).parents[2] / ".jars/prometheus/usr/bin"


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`; the test is skipped where there is none."""
    found = shutil.which(name, path=os.pathsep.join((os.environ["PATH"], str(UNPACKED))))
    if found is None:
        pytest.skip(f"{name} is missing: `make prometheus` unpacks Debian's package; elsewhere install Prometheus")
    return found


def promtool(*words: str | Path) -> str:
    """Run promtool, which must succeed; return what it printed."""
    done = subprocess.run(
        [program("promtool"), *map(str, words)], capture_output=True, text=True, timeout=scaled(60), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """A running Prometheus that asks the targets twice a second and judges the rules as often."""

    def __init__(self, url: str) -> None:
        self._url = url

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that fire now."""
        return [each for each in self._data("alerts").get("alerts", ()) if each["state"] == "firing"]

    def judged_at(self) -> datetime:
        """Return the time since which all rules have been judged."""
        return min(datetime.fromisoformat(each["lastEvaluation"]) for each in self._data("rules")["groups"])

    def value(self, expression: str) -> float | None:
        """Return the value of an expression with one result; None: it has none yet."""
        found = self._data(f"query?{urlencode({'query': expression})}").get("result")
        return float(found[0]["value"][1]) if found else None

    def _data(self, of: str) -> dict[str, Any]:
        """Ask it; it says nothing while it starts."""
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{of}", timeout=scaled(10)) as answer:  # noqa: S310 - loopback
                data: dict[str, Any] = json.load(answer)["data"]
                return data
        except HTTPError as refused:
            if refused.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
        except URLError:
            pass  # its port is not open yet
        return {}


@contextmanager
def prometheus(folder: Path, target: str, rules: Path | None = None, **scrape: Any) -> Iterator[Prometheus]:
    """Run one on the loopback address, for `target` ("127.0.0.1:8080"), which is asked as `scrape` says."""
    (port,) = free_ports(1)
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [{"job_name": "snapreplay", **scrape, "static_configs": [{"targets": [target]}]}],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    storage = ("--storage.tsdb.path", str(folder / "data"))
    words = ["--config.file", str(file), *storage, "--web.listen-address", f"127.0.0.1:{port}"]
    with (
        (folder / "prometheus.log").open("w") as log,
        subprocess.Popen([program("prometheus"), *words], stderr=log) as it,
    ):
        try:
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            it.terminate()
