"""The commands of an operator to an app with Kafka's own tools, one function each. The tools' requests are sent by
another client; `tool` is the line that a person would type.

Each is carried out while the app has processed 80 payments, and its input may hold more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from tests.operators.ground import Ground
from tests.support import reference, tampering

HALFWAY = 70
POSITION = 80
"""Next offset of the input when a command is carried out."""


@dataclass(frozen=True)
class Command:
    """`remedy`: what the operator does when the app says what is wrong and has no command of its own for it: he takes
    back what he did, or creates what is missing. `final`: the app says that nothing helps."""

    name: str
    tool: str
    carry_out: Callable[[Ground], object]
    remedy: Callable[[Ground], object] | None = None
    final: bool = False


def delete(ground: Ground, topic: str) -> None:
    tampering.delete(ground.servers, topic)


def _delete_input(ground: Ground) -> None:
    delete(ground, ground.input)


def _create_input(ground: Ground) -> None:
    ground.create(ground.input)


def _replace_input(ground: Ground, records: int) -> None:
    _delete_input(ground)
    _create_input(ground)
    ground.feed(records)


def _delete_output(ground: Ground) -> None:
    delete(ground, ground.output)
    ground.outputs_gone = ground.next_number


def _create_output(ground: Ground) -> None:
    ground.create(ground.output)


def _ensure(ground: Ground) -> None:
    """Ensure the topics also when no process of the app is a member of its group, for it has stood still for too
    long."""
    done = ground.command("topics ensure PROGRAM --replace-lost")
    assert done.returncode == 0, done.stderr


def _trim_input(ground: Ground, before: int) -> None:
    tampering.trim(ground.servers, ground.input, 0, before)


def _fed_and_trimmed(ground: Ground) -> None:
    """Records that nobody has processed are gone, or none: a running app may be quicker."""
    ground.removed = set(range(POSITION, POSITION + 20))
    ground.feed(20)
    _trim_input(ground, POSITION + 20)


def _configured(topic: str, name: str, value: str) -> Callable[[Ground], None]:
    def change(ground: Ground) -> None:
        tampering.configure(ground.servers, getattr(ground, topic), name, value)

    return change


def _both(
    first: Callable[[Ground], None], then: Callable[[Ground], None]
) -> Callable[[Ground], None]:
    def change(ground: Ground) -> None:
        first(ground)
        then(ground)

    return change


def _deleted(topic: str) -> Callable[[Ground], None]:
    return lambda ground: delete(ground, getattr(ground, topic))


def _own_topics(ground: Ground, *, create: bool) -> None:
    for topic in (ground.increments, ground.snapshots):
        delete(ground, topic)
    if create:
        _ensure(ground)


def _load_again(ground: Ground, shift: int) -> None:
    """Both own topics as a tool writes them that reads records: other offsets, no transactions, another id. A process
    may have written to the new topics before."""
    for topic in (ground.increments, ground.snapshots):
        (records,) = reference.committed(ground.servers, topic, 1)
        dumped = tampering.messages(ground.servers, topic, len(records))
        delete(ground, topic)
        ground.create(topic, 1, **KEPT_FOR_EVER)
        tampering.append(ground.servers, topic, *[b"by the tool"] * shift)
        tampering.write_again(ground.servers, topic, dumped)


def _group(request: str) -> Callable[[Ground], None]:
    def change(ground: Ground) -> None:
        tampering.group(ground.servers, ground.app_id, ground.increments, request)

    return change


# fmt: off
_ALL = (
    Command("delete the input",
            "kafka-topics.sh --delete --topic INPUT",
            _delete_input, _create_input),
    Command("delete the input, create it empty",
            "kafka-topics.sh --delete --topic INPUT; kafka-topics.sh --create --topic INPUT",
            lambda ground: _replace_input(ground, 0)),
    Command("delete the input, create it, load less",
            "the same, then kafka-console-producer.sh",
            lambda ground: _replace_input(ground, 30)),
    Command("delete the input, create it, load more",
            "the same, then kafka-console-producer.sh",
            lambda ground: _replace_input(ground, 120)),
    Command("trim the input up to what was processed",
            "kafka-delete-records.sh (INPUT, offset 80)",
            lambda ground: _trim_input(ground, POSITION)),
    Command("trim the input beyond what was processed",
            "kafka-delete-records.sh (INPUT, offset 100)",
            _fed_and_trimmed),
    Command("more partitions for the input",
            "kafka-topics.sh --alter --partitions 2 --topic INPUT",
            lambda ground: tampering.grow(ground.servers, ground.input, 2), final=True),
    Command("compact the input",
            "kafka-configs.sh --alter --topic INPUT --add-config cleanup.policy=compact",
            _configured("input", "cleanup.policy", "compact"), _configured("input", "cleanup.policy", "delete")),
    Command("delete the output",
            "kafka-topics.sh --delete --topic OUTPUT",
            _delete_output, _create_output),
    Command("delete the output, create it",
            "kafka-topics.sh --delete --topic OUTPUT; kafka-topics.sh --create --topic OUTPUT",
            _both(_delete_output, _create_output)),
    Command("more partitions for the output",
            "kafka-topics.sh --alter --partitions 2 --topic OUTPUT",
            lambda ground: tampering.grow(ground.servers, ground.output, 2)),
    Command("a small limit for the output's messages",
            "kafka-configs.sh --alter --topic OUTPUT --add-config max.message.bytes=80",
            _configured("output", "max.message.bytes", "80"), _configured("output", "max.message.bytes", "1048588")),
    Command("delete the increments topic",
            "kafka-topics.sh --delete --topic INCREMENTS",
            _deleted("increments"), _ensure),
    Command("delete the increments topic, create it",
            "kafka-topics.sh --delete --topic INCREMENTS; snapreplay topics ensure --replace-lost",
            _both(_deleted("increments"), _ensure)),
    Command("delete the snapshots topic",
            "kafka-topics.sh --delete --topic SNAPSHOTS",
            _deleted("snapshots"), _ensure),
    Command("delete the snapshots topic, create it",
            "kafka-topics.sh --delete --topic SNAPSHOTS; snapreplay topics ensure --replace-lost",
            _both(_deleted("snapshots"), _ensure)),
    Command("delete both own topics",
            "kafka-topics.sh --delete for both",
            lambda ground: _own_topics(ground, create=False), _ensure),
    Command("delete both own topics, create them",
            "kafka-topics.sh --delete for both; snapreplay topics ensure",
            lambda ground: _own_topics(ground, create=True)),
    Command("dump both own topics, load them again",
            "kafka-topics.sh --delete and --create for both, records by a tool before and after",
            lambda ground: _load_again(ground, 0)),
    Command("dump both own topics, load them behind other records",
            "the same, at other offsets",
            lambda ground: _load_again(ground, 3)),
    Command("trim the increments topic to its end",
            "kafka-delete-records.sh (INCREMENTS, offset -1)",
            lambda ground: tampering.trim_to_end(ground.servers, ground.increments)),
    Command("trim the snapshots topic to its end",
            "kafka-delete-records.sh (SNAPSHOTS, offset -1)",
            lambda ground: tampering.trim_to_end(ground.servers, ground.snapshots)),
    Command("more partitions for the increments topic",
            "kafka-topics.sh --alter --partitions 2 --topic INCREMENTS",
            lambda ground: tampering.grow(ground.servers, ground.increments, 2), final=True),
    Command("compact the increments topic",
            "kafka-configs.sh --alter --topic INCREMENTS --add-config cleanup.policy=compact",
            _configured("increments", "cleanup.policy", "compact"),
            _configured("increments", "cleanup.policy", "delete")),
    Command("retention for the increments topic",
            "kafka-configs.sh --alter --topic INCREMENTS --add-config retention.ms=1000",
            _configured("increments", "retention.ms", "1000"), _configured("increments", "retention.ms", "-1")),
    Command("a small limit for the increments topic's messages",
            "kafka-configs.sh --alter --topic INCREMENTS --add-config max.message.bytes=100",
            _configured("increments", "max.message.bytes", "100"),
            _configured("increments", "max.message.bytes", "1048588")),
    Command("delete the consumer group",
            "kafka-consumer-groups.sh --delete --group APP",
            _group("delete")),
    Command("reset the group's offsets",
            "kafka-consumer-groups.sh --reset-offsets --to-earliest --execute --group APP",
            _group("reset")),
)
# fmt: on
COMMANDS: Mapping[str, Command] = {each.name: each for each in _ALL}
