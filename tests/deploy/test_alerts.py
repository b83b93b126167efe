"""deploy/observability/alerts.yaml: each alert fires for what is broken, by promtool and on a real broker."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka import AIOKafkaProducer

from snapreplay.api.server import HttpServer
from snapreplay.service.live import recoverability_monitor
from snapreplay.service.topics.requirements import ensure_topics
from tests.deploy.dockerfile import ROOT
from tests.deploy.prometheus import Prometheus, prometheus, promtool
from tests.deploy.promql import TARGET, wrong_words
from tests.deploy.test_dashboard import TARGETS, filled
from tests.service.conftest import stage
from tests.support import apps
from tests.support.deadlines import scaled
from tests.support.stage import phase, snapshot, until
from tests.support.tampering import delete

__all__ = ["stage"]

FILE = ROOT / "deploy/observability/alerts.yaml"
CASES = Path(__file__).with_name("alerts_cases.yaml")
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_exists_and_leads_to_its_section(rule: dict[str, Any]) -> None:
    """Metrics, labels and their values are those of the code; the runbook has a section of its name."""
    assert wrong_words(rule["expr"]) == []
    assert rule["labels"]["severity"] in {"critical", "warning"}
    page, _, section = rule["annotations"]["runbook_url"].partition("#")
    assert section == rule["alert"].lower()
    assert f"\n## {rule['alert']}\n" in (ROOT / page).read_text(encoding="utf-8")


def test_the_runbook_has_no_other_alerts() -> None:
    """An alert that is gone takes its section along."""
    sections = re.findall(r"^## (Snapreplay\w+)", (ROOT / "docs/runbook.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == [rule["alert"] for rule in ALERTS]


def test_each_alert_fires_for_what_is_broken_and_for_nothing_else(tmp_path: Path) -> None:
    """promtool judges the cases: not before its time, not for the partition beside it. An annotation uses only labels
    that the alert then has."""
    promtool("check", "rules", FILE)
    tests = yaml.safe_load(CASES.read_text(encoding="utf-8"))["tests"]
    fired: dict[str, set[str]] = {}
    quiet = set()
    for case in (case for test in tests for case in test["alert_rule_test"]):
        for alert in case.get("exp_alerts", ()):
            fired.setdefault(case["alertname"], set()).update(alert["exp_labels"])
        if "exp_alerts" not in case:
            quiet.add(case["alertname"])
    assert fired.keys() == quiet == {rule["alert"] for rule in ALERTS}
    for rule in ALERTS:
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert used <= fired[rule["alert"]] | TARGET, rule["alert"]
    with_rules(tmp_path, annotations=False)
    (tmp_path / CASES.name).write_text(CASES.read_text(encoding="utf-8"))
    promtool("test", "rules", tmp_path / CASES.name)


Firing = Callable[[], set[tuple[str, str]]]

RARE = ("restore_progress_ratio", "proposals_total", "standby_lag_offsets", 'mode="warm"')
"""In the queries of the dashboard that have no answer: nothing of the kind has happened."""


def with_rules(folder: Path, *, annotations: bool) -> Path:
    """Write the rules without their annotations, or without their patience."""
    rules = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for" if annotations else "annotations", None)
    (folder / FILE.name).write_text(yaml.safe_dump(rules))
    return folder / FILE.name


def rule_of(value: Any, account: dict[str, Any]) -> None:
    apps.refuse_poison(value, account)
    apps.grow(value, account)


def firing(asked: Prometheus, app_id: str) -> set[tuple[str, str]]:
    """Return alert and partition; nothing in an annotation was left out. Counters of other apps, which earlier tests
    have left in this process, are none of this app's."""
    found = [each for each in asked.alerts() if each["labels"].get("app", app_id) == app_id]
    for each in found:
        said = " ".join(each["annotations"].values())
        assert not re.search(r"<no value>|<error|\{\{|  ", said), said
    return {
        (each["labels"]["alertname"].removeprefix("Snapreplay"), each["labels"].get("partition", "")) for each in found
    }


async def fires(now: Firing, wanted: set[tuple[str, str]], but: set[tuple[str, str]] | None = None) -> None:
    """Wait until these alerts fire, and none of `but`. None: no other."""
    found: set[tuple[str, str]] = set()

    def there() -> bool:
        found.clear()
        found.update(now())
        return found == wanted if but is None else found >= wanted and not found & but

    try:
        await until(there)
    except AssertionError:
        raise AssertionError(f"firing: {sorted(found)}; wanted: {sorted(wanted)}") from None


@asynccontextmanager
async def producing(here: Any, transactional_id: str) -> AsyncIterator[AIOKafkaProducer]:
    """Another program."""
    made = AIOKafkaProducer(bootstrap_servers=here.bootstrap_servers, transactional_id=transactional_id)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def watched(here: Any, folder: Path) -> AsyncIterator[tuple[Any, Prometheus]]:
    """A service that runs, and a Prometheus that watches it; the service is stopped by `stop` only."""
    addresses: list[Any] = []
    service = here.service(http=HttpServer(on_bound=addresses.append))
    await service.start()
    try:
        with prometheus(folder, f"127.0.0.1:{addresses[0].port}", with_rules(folder, annotations=True)) as asked:
            yield service, asked
    finally:
        await service.stop()


@pytest.mark.whole
async def test_prometheus_tells_what_is_wrong_with_a_real_service(stage, unique, tmp_path, monkeypatch) -> None:
    """Healthy: silence. A record that fails, a large entry, a transaction left open, a topic deleted: each has its
    alerts, and the partitions beside it have not. What is repaired is silent again. Stopped: they have no owner. Each
    query of the dashboard has an answer."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.2)
    stopped = {("PartitionNotOwned", str(n)) for n in range(4)} | {("ProcessSilent", "")}
    here = await stage(apps.ledger(unique("alerts"), rule_of), 4)
    async with watched(here, tmp_path) as (service, asked):
        now = partial(firing, asked, here.app.app_id)
        await service.wait_live(scaled(60))
        await here.send((f"{n}:a", {"amount": 1}) for n in range(4))
        await here.all_processed(service)
        for partition in range(4):
            await snapshot(service, partition)
        await until(lambda: asked.value("sum(snapreplay_recoverable)") == 4, "scraped")
        scraped_at = datetime.now(UTC)
        await until(lambda: asked.judged_at() > scraped_at, "the rules have seen what was scraped")
        await until(lambda: now() == set(), "a healthy service is no alarm")
        async with producing(here, f"{here.app.app_id}-foreign") as holder:
            await holder.begin_transaction()
            await (await holder.send(here.input, b"{}", partition=2))
            await here.send([("0:a", {"amount": 2, "poison": True}), ("1:a", {"amount": 1, "padding": 500_000})])
            await phase(service, "failed", 0)
            broken, blocked = {("PartitionFailed", "0"), ("EntryTooLarge", "1")}, {("BlockedByTransaction", "2")}
            await fires(now, broken | blocked)
            for expression in (target["expr"] for target in TARGETS):
                answered = partial(asked.value, filled(expression, here.app.app_id))
                if any(word in expression for word in RARE):
                    assert answered() is None, expression
                else:  # a rate takes two scrapes
                    await until(lambda: answered() is not None, expression)  # noqa: B023 - awaited in this turn
            delete(here.bootstrap_servers, here.snapshots)
            lost = {("NotRecoverable", str(n)) for n in range(1, 4)}
            await fires(now, broken | lost, but=stopped)
            await ensure_topics(here.app, here.settings(), here.cluster)
            await fires(now, broken, but=lost | stopped)
        await service.stop()
        await fires(now, stopped, but=broken | lost)
