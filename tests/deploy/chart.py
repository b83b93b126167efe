"""Renders deploy/helm, for test_chart.py: `python -m tests.deploy.chart` writes `chart.yaml` again. Needs helm."""

import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.deploy.dockerfile import ROOT

CHART = ROOT / "deploy/helm"
RENDERED = Path(__file__).with_name("chart.yaml")
HELM = next(filter(None, (shutil.which("helm", path=str(ROOT / ".jars/helm")), shutil.which("helm"))), "")
EVERYTHING = {
    "image.repository": "ledger",
    "http.tokensSecret": "ledger-http",
    "http.tlsSecret": "ledger-tls",
    "monitoring.enabled": "true",
    "monitoring.tokenSecret.name": "ledger-prometheus",
    "jobs.audit.enabled": "true",
    "jobs.compact.enabled": "true",
    "jobs.image.repository": "ledger-audit",
}


def digest() -> str:
    """Return the digest of all files of the chart."""
    files = sorted(each for each in CHART.rglob("*") if each.is_file())
    named = b"".join(str(each.relative_to(CHART)).encode() + b"\0" + each.read_bytes() for each in files)
    return hashlib.sha256(named).hexdigest()


def render(values: dict[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    """Render the chart as the release `ledger` in the namespace `prod`."""
    options = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    command = [
        HELM,
        "template",
        "ledger",
        str(CHART),
        "--namespace",
        "prod",
        "--kube-version",
        "1.31.0",
        *options,
        *more,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def whole() -> str:
    """Return the chart with everything switched on, below the digest of its files."""
    return f"# {digest()}\n{render(EVERYTHING).stdout}"


if __name__ == "__main__":
    RENDERED.write_text(whole(), encoding="utf-8")
