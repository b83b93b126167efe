"""Tests of resources that are not of Kubernetes itself: of Strimzi, of the Prometheus and of the Spark operator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from snapreplay.app.app import App
from snapreplay.app.topic import Topic
from snapreplay.service.ports import TopicFacts
from snapreplay.service.topics.requirements import check_own_topic
from snapreplay.state.map import MapState
from tests.deploy.crds import validate
from tests.deploy.test_chart import RENDERED
from tests.deploy.test_kubernetes import RESOURCES
from tests.service.test_access import Restricted, wanted

STRIMZI: dict[str, dict[str, Any]] = {each["metadata"]["name"]: each for each in RESOURCES["strimzi"][:-1]}
USER: dict[str, Any] = RESOURCES["strimzi"][-1]
OTHERS = [*RESOURCES["strimzi"], *RESOURCES["audit-spark-application"]]
OTHERS += [each for each in RENDERED if "monitoring" in each["apiVersion"]]
LEDGER: App[Any] = App(
    "ledger", inputs=[Topic("payments")], outputs=[Topic("balances")], state=lambda: MapState(str, int)
)


@pytest.mark.parametrize("resource", OTHERS, ids=lambda each: f"{each['kind']}/{each['metadata']['name']}")
def test_the_operator_has_every_field(resource) -> None:
    """By the schema that it publishes. A misspelt field is refused."""
    validate(resource)
    with pytest.raises(jsonschema.ValidationError, match="partitons"):
        validate({**resource, "spec": {**resource["spec"], "partitons": 1}})


def test_these_are_all_kinds() -> None:
    """A new kind needs a schema."""
    kinds = {"KafkaTopic", "KafkaUser", "ServiceMonitor", "PrometheusRule", "SparkApplication"}
    assert {each["kind"] for each in OTHERS} == kinds


def test_strimzi_makes_topics_that_the_app_accepts() -> None:
    """As a start checks them: as many partitions as the inputs, and nothing is deleted by the brokers."""
    count = STRIMZI["payments"]["spec"]["partitions"]
    assert set(STRIMZI) == {"payments", "balances", "ledger-increments", "ledger-snapshots"}
    for name in ("ledger-increments", "ledger-snapshots"):
        spec = STRIMZI[name]["spec"]
        check_own_topic(LEDGER, TopicFacts(name, spec["partitions"], spec["replicas"], spec["config"]), count)
        assert {"retention.ms", "retention.bytes", "cleanup.policy"} <= spec["config"].keys()


def test_strimzi_s_user_may_what_the_guide_asks_for() -> None:
    """What was tried on a broker with Kafka's authorizer, and the groups of the witness and the audits."""
    broker: Any = SimpleNamespace(open="")
    asked = wanted(Restricted(broker, LEDGER).mine)
    kinds = {"topic": "TOPIC", "group": "GROUP", "transactionalId": "TRANSACTIONAL_ID", "cluster": "BROKER"}
    operations = {"DescribeConfigs": "DESCRIBE_CONFIGS"}
    given = {
        (
            kinds[acl["resource"]["type"]],
            acl["resource"].get("name", "kafka-cluster"),
            operations.get(each, each.upper()),
        )
        for acl in USER["spec"]["authorization"]["acls"]
        for each in acl["operations"]
    }
    assert given - asked == {("GROUP", f"ledger-{name}", "READ") for name in ("witness", "audit")}
    assert asked <= given
