"""The commands of an operator to an app with Kafka's own tools: what a person would type as kafka-topics.sh,
kafka-delete-records.sh, kafka-configs.sh and kafka-consumer-groups.sh. The tools' requests are sent by another client.

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
    carry_out: Callable[[Ground], object]
    remedy: Callable[[Ground], object] | None = None
    final: bool = False


def _to(topic: str, change: Callable[..., object], *arguments: object) -> Callable[[Ground], object]:
    """Do this to a topic of the app, by its name in `Ground`."""
    return lambda ground: change(ground.servers, getattr(ground, topic), *arguments)


def _create_input(ground: Ground) -> None:
    ground.create(ground.input)


def _replace_input(ground: Ground, records: int) -> None:
    tampering.delete(ground.servers, ground.input)
    _create_input(ground)
    ground.feed(records)


def _delete_output(ground: Ground) -> None:
    tampering.delete(ground.servers, ground.output)
    ground.outputs_gone = ground.next_number


def _create_output(ground: Ground) -> None:
    ground.create(ground.output)


def _ensure(ground: Ground) -> None:
    """Ensure the topics also when no process of the app is a member of its group, for it has stood still for too
    long."""
    done = ground.command("topics ensure PROGRAM --replace-lost")
    assert done.returncode == 0, done.stderr


def _fed_and_trimmed(ground: Ground) -> None:
    """Records that nobody has processed are gone, or none: a running app may be quicker."""
    ground.removed = set(range(POSITION, POSITION + 20))
    ground.feed(20)
    tampering.trim(ground.servers, ground.input, 0, POSITION + 20)


def _setting(name: str, topic: str, setting: str, value: str, taken_back: str) -> Command:
    change, change_back = (_to(topic, tampering.configure, setting, each) for each in (value, taken_back))
    return Command(name, change, change_back)


def _both(first: Callable[[Ground], object], then: Callable[[Ground], object]) -> Callable[[Ground], object]:
    def change(ground: Ground) -> None:
        first(ground)
        then(ground)

    return change


def _own_topics(ground: Ground, *, create: bool) -> None:
    tampering.delete(ground.servers, ground.increments, ground.snapshots)
    if create:
        _ensure(ground)


def _load_again(ground: Ground, shift: int) -> None:
    """Both own topics as a tool writes them that reads records: other offsets, no transactions, another id. A process
    may have written to the new topics before."""
    for topic in (ground.increments, ground.snapshots):
        (records,) = reference.committed(ground.servers, topic, 1)
        dumped = tampering.messages(ground.servers, topic, len(records))
        tampering.delete(ground.servers, topic)
        ground.create(topic, 1, **KEPT_FOR_EVER)
        tampering.append(ground.servers, topic, *[b"by the tool"] * shift)
        tampering.write_again(ground.servers, topic, dumped)


def _group(request: str) -> Callable[[Ground], object]:
    return lambda ground: tampering.group(ground.servers, ground.app_id, ground.increments, request)


_ALL = (
    Command("delete the input", _to("input", tampering.delete), _create_input),
    Command("delete the input, create it empty", lambda ground: _replace_input(ground, 0)),
    Command("delete the input, create it, load less", lambda ground: _replace_input(ground, 30)),
    Command("delete the input, create it, load more", lambda ground: _replace_input(ground, 120)),
    Command("trim the input up to what was processed", _to("input", tampering.trim, 0, POSITION)),
    Command("trim the input beyond what was processed", _fed_and_trimmed),
    Command("more partitions for the input", _to("input", tampering.grow, 2), final=True),
    _setting("compact the input", "input", "cleanup.policy", "compact", "delete"),
    Command("delete the output", _delete_output, _create_output),
    Command("delete the output, create it", _both(_delete_output, _create_output)),
    Command("more partitions for the output", _to("output", tampering.grow, 2)),
    _setting("a small limit for the output's messages", "output", "max.message.bytes", "80", "1048588"),
    Command("delete the increments topic", _to("increments", tampering.delete), _ensure),
    Command("delete the increments topic, create it", _both(_to("increments", tampering.delete), _ensure)),
    Command("delete the snapshots topic", _to("snapshots", tampering.delete), _ensure),
    Command("delete the snapshots topic, create it", _both(_to("snapshots", tampering.delete), _ensure)),
    Command("delete both own topics", lambda ground: _own_topics(ground, create=False), _ensure),
    Command("delete both own topics, create them", lambda ground: _own_topics(ground, create=True)),
    Command("dump both own topics, load them again", lambda ground: _load_again(ground, 0)),
    Command("dump both own topics, load them behind other records", lambda ground: _load_again(ground, 3)),
    Command("trim the increments topic to its end", _to("increments", tampering.trim_to_end)),
    Command("trim the snapshots topic to its end", _to("snapshots", tampering.trim_to_end)),
    Command("more partitions for the increments topic", _to("increments", tampering.grow, 2), final=True),
    _setting("compact the increments topic", "increments", "cleanup.policy", "compact", "delete"),
    _setting("retention for the increments topic", "increments", "retention.ms", "1000", "-1"),
    _setting("a small limit for the increments topic's messages", "increments", "max.message.bytes", "100", "1048588"),
    Command("delete the consumer group", _group("delete")),
    Command("reset the group's offsets", _group("reset")),
)
COMMANDS: Mapping[str, Command] = {each.name: each for each in _ALL}
