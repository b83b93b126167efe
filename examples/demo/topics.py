"""The demo's own topics: created before the app's, removed at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.demo.failed import DemoFailed
from examples.demo.names import PARTITIONS, Names

KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Record times are of 2013: with the default retention of a week the flights would be gone in minutes."""

ANSWER_S = 30.0

Value = str | int | float | bool


def create(bootstrap_servers: str, names: Names) -> None:
    """Create input and output; `snapreplay topics ensure` creates the app's two.

    Raises:
        DemoFailed: the cluster cannot be reached, or refuses, such as when a topic exists already.
    """
    wanted = [NewTopic(topic, PARTITIONS, config=KEPT_FOR_EVER) for topic in (names.input_topic, names.output_topic)]
    admin = _admin(bootstrap_servers)  # kept, because answers end with their client
    answers = admin.create_topics(wanted, operation_timeout=ANSWER_S)
    for topic, answer in answers.items():
        try:
            answer.result(ANSWER_S)
        except (KafkaException, TimeoutError) as error:
            raise DemoFailed(f"topic {topic} could not be created: {error}") from error


def delete(bootstrap_servers: str, names: Names, report: Callable[[str], None]) -> None:
    """Remove all four topics and the group. What cannot be removed is reported by name, not raised."""
    admin = _admin(bootstrap_servers)
    with suppress(KafkaException):  # a killed static member stays in the group for its session
        for group in admin.delete_consumer_groups([names.app_id]).values():
            group.exception(ANSWER_S)
    for topic, answer in admin.delete_topics(names.all_topics, operation_timeout=ANSWER_S).items():
        try:
            answer.result(ANSWER_S)
        except (KafkaException, TimeoutError) as error:
            if not _is_absent(error):
                report(f"topic {topic} could not be removed: {error}")


def reach(bootstrap_servers: str) -> None:
    """Raise DemoFailed if no broker answers there."""
    try:
        _admin(bootstrap_servers).list_topics(timeout=ANSWER_S)
    except KafkaException as error:
        raise DemoFailed(
            f"no Kafka cluster answers at {bootstrap_servers}: {error}\n"
            "check the address; without --bootstrap-servers the demo starts a broker of its own"
        ) from error


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient(quiet({"bootstrap.servers": bootstrap_servers}))


def quiet(configuration: Mapping[str, str | int | bool]) -> dict[str, Value]:
    """Hide librdkafka's messages about a broker that comes and goes."""
    return {**configuration, "log_level": 2}


def _is_absent(error: Exception) -> bool:
    reason = error.args[0] if error.args else None
    return isinstance(reason, KafkaError) and reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
