"""The topics of an app: what they must be, and making them so."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.names import alter
from snapreplay.app.out import DEFAULT_LIMIT_BYTES
from snapreplay.app.ways import app_name, keys_moved_hint, new_app, own_topic_grown_hint
from snapreplay.counted import counted
from snapreplay.errors import StopError, UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.ports import Cluster, NewTopic, TopicFacts

KEPT_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Ours are trimmed by the owner, never by time, size or compaction (docs/FORMAT.md)."""

RECORD_BYTES_NEEDED = 1_000_000
"""max.message.bytes must leave room for a record of 900,000 bytes and its envelope."""


class MissingInput(UsageError):
    """The start is refused because an input is missing. The partitions of a running service wait for the topic.

    Safe: Nothing was started. If the app has processed records of the topic, restore it with its old offsets: a new
    topic of this name is refused.
    """


class TopicsIncomplete(UsageError):
    """One of the app's own topics exists and the other does not: creating an empty one would not repair that.

    Safe: Nothing was started or created. Do not stop any process of the app that still runs: it may have the state in
    memory, and writes it once the topic exists.
    """


def own_topics(app: App[Any], settings: Settings) -> tuple[str, ...]:
    """Name the increments and snapshots topics first; dead letters only if the policy writes them."""
    letters = [names.dead_letters_topic(app.app_id)] if settings.errors.policy == "dead_letter" else []
    return (*names.own_pair(app.app_id), *app.internal_names, *letters)


async def ensure_topics(
    app: App[Any],
    settings: Settings,
    cluster: Cluster,
    *,
    create_io_partitions: int | None = None,
    replace_lost: bool = False,
) -> list[str]:
    """Create the app's own topics with the inputs' partition count. While the app runs, its owners have in memory what
    was in a missing topic, and write it to the new one. Otherwise an empty topic would hide the loss.

    Args:
        create_io_partitions: also create missing inputs and outputs, with this many partitions.
        replace_lost: create the missing one of increments and snapshots, empty, although the other one exists.

    Returns:
        One line per topic, "created NAME ..." or "ok NAME ...".

    Raises:
        UsageError: an input or output is missing, or `create_io_partitions` is not a number of partitions.
        TopicsIncomplete: one of increments and snapshots exists without the other, and the app does not run.
        StopError: the cluster refused to create a topic, or one that exists cannot hold our log.
        RegistryUnavailable: a schema registry did not answer.
    """
    _check_count(create_io_partitions)
    found = await described(app, settings, cluster)
    facts = found | _to_be_created(app, found, create_io_partitions)
    count = partition_count(app, await _known(cluster, app, facts), create_io_partitions)
    increments, snapshots, *others = own_topics(app, settings)
    missing = [name for name in (increments, snapshots) if name not in facts]
    in_use = len(missing) != 1 or replace_lost or await cluster.member_count(app.app_id)
    if not in_use:
        raise incomplete(app, missing[0])
    for name in (each for each in (increments, snapshots) if each not in missing):
        check_own_topic(app, facts[name], count)
    check_internal_topics(app, facts, count)
    named = (*app.input_names, *app.broadcast_names)
    check_replayable(settings, [facts[name] for name in named if name in facts])
    # Nothing is created before all of it is known to be accepted.
    lines = await asyncio.to_thread(_checked_schemas, app)
    if create_io_partitions is not None:
        configs = {name: table_config(settings) if app.is_table(name) else {} for name in _io_topics(app)}
        lines += await _create_missing(cluster, configs, create_io_partitions)
    configs = dict.fromkeys([increments, snapshots, *others], KEPT_FOR_EVER)
    return lines + await _create_missing(cluster, configs, count)


def table_config(settings: Settings) -> dict[str, str]:
    """Return what keeps the newest row of each key for ever, so that a new partition or app reads the whole table."""
    return {"cleanup.policy": "compact"} if _reads_changes(settings) else KEPT_FOR_EVER


def _checked_schemas(app: App[Any]) -> list[str]:
    """Ask schema registries whether they take what the app writes. Returns a line for each output that has one."""
    found = (codec.schemas for topic in app.outputs for codec in (topic.key, topic.value))
    return [schemas.check() for schemas in found if schemas is not None]


def _check_count(partitions: object) -> None:
    if partitions is not None and (type(partitions) is not int or partitions < 1):
        raise UsageError(
            f"{partitions!r} is not a number of partitions", hint="pass an int of at least 1, or leave it out"
        )


def _to_be_created(app: App[Any], found: dict[str, TopicFacts], partitions: int | None) -> dict[str, TopicFacts]:
    """Return the missing inputs and outputs, as they will be; none unless they are to be created."""
    if partitions is None:
        return {}
    missing = [name for name in _io_topics(app) if name not in found]
    return {name: TopicFacts(name, partitions, -1, {}) for name in missing}


async def _create_missing(cluster: Cluster, configs: dict[str, dict[str, str]], count: int) -> list[str]:
    existing = await cluster.topics(configs)
    missing = [name for name in configs if name not in existing]
    await cluster.create_topics([NewTopic(name, count, config=configs[name]) for name in missing])
    return [f"created {name} ({counted(count, 'partition')})" if name in missing else f"ok {name}" for name in configs]


async def _known(cluster: Cluster, app: App[Any], facts: dict[str, TopicFacts]) -> dict[str, TopicFacts]:
    for name in _io_topics(app):
        if name not in facts:
            raise await missing_topic(cluster, app, name)
    return facts


def _io_topics(app: App[Any]) -> list[str]:
    """Name the inputs and outputs that the app shares with others."""
    names = (*app.input_names, *app.broadcast_names, *(topic.name for topic in app.outputs))
    return [name for name in names if name not in app.internal_names]


async def described(
    app: App[Any], settings: Settings, cluster: Cluster, running: Collection[str] = ()
) -> dict[str, TopicFacts]:
    """Return the facts of all topics of an app, of those that match a pattern, too, and of each input of a broadcast
    table those of its topic; missing ones are absent. `running` are topics of patterns that are inputs. Raises as
    `ports.Cluster.topics`."""
    matching = [name for name in await cluster.topic_names() if app.declaration(name)] if app.patterns else []
    needed = {*_io_topics(app), *own_topics(app, settings), *(name for name in running if not is_broadcast(name))}
    return with_broadcast(app, await cluster.topics(needed, [name for name in matching if name not in needed]))


def with_broadcast(app: App[Any], facts: dict[str, TopicFacts]) -> dict[str, TopicFacts]:
    """Add the facts of the inputs of broadcast tables, "rates/0" and so on."""
    for topic in [facts[name] for name in app.broadcast_names if name in facts]:
        for number in range(topic.partition_count):
            name = names.broadcast_input(topic.name, number)
            facts[name] = msgspec.structs.replace(topic, name=name)
    return facts


def is_broadcast(name: str) -> bool:
    """Say whether it is an input of a broadcast table: its topic may have any number of partitions."""
    return names.BROADCAST in name


def matching(app: App[Any], facts: Iterable[str], running: Collection[str] = ()) -> list[str]:
    """Return the topics, sorted, that match a pattern of the inputs. Topics with the name of an own topic of another
    app are none of them, unless they are `running` inputs already."""
    return [name for name in _declared(app, facts) if name in running or not own_name(app, name)]


def _declared(app: App[Any], facts: Iterable[str]) -> list[str]:
    return sorted(name for name in facts if name not in app.input_names and app.declaration(name))


def left_out(app: App[Any], facts: Iterable[str], running: Collection[str] = ()) -> dict[str, str]:
    """Return a sentence for each topic that matches a pattern and has the name of an own topic of another app, without
    those that are `running` inputs already."""
    return {
        name: f"topic {name} matches {_pattern(app, name)!r}, but is left out: it is named like one of the own topics"
        f' of app {owner}. To read it as an input, declare it by its name: Topic("{name}")'
        for name in _declared(app, facts)
        if name not in running and (owner := own_name(app, name))
    }


_OWN_ENDINGS = tuple(named("") for named in (names.increments_topic, names.snapshots_topic, names.dead_letters_topic))


def own_name(app: App[Any], name: str) -> str:
    """Return the other app whose own topic has this name; empty: none has, or the pattern asks for such names."""
    pattern, owner = _pattern(app, name), name.partition(names.INTERNAL)[0]
    if names.is_internal_topic(owner, name):
        return "" if names.INTERNAL in pattern else owner
    ending = next((each for each in _OWN_ENDINGS if name.endswith(each) and not pattern.endswith(each)), "")
    return name.removesuffix(ending).partition(names.SAVEPOINT)[0] if ending else ""


def _pattern(app: App[Any], name: str) -> str:
    declared = app.declaration(name)
    return declared.name if declared is not None else ""


def matched_inputs(
    app: App[Any], settings: Settings, facts: Mapping[str, TopicFacts], count: int, running: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the topics, sorted, that match a pattern and can be inputs. `running` are inputs already."""
    misfits = misfits_of(app, settings, facts, count, running)
    return tuple(name for name in matching(app, facts, running) if name not in misfits)


def misfits_of(
    app: App[Any], settings: Settings, facts: Mapping[str, TopicFacts], count: int, running: Collection[str] = ()
) -> dict[str, str]:
    """Return a sentence for each topic that matches a pattern and cannot be an input. Of the `running` ones only the
    partition count is looked at: their readers report the rest."""
    found = {}
    for name in (each for each in matching(app, facts, running) if not is_broadcast(each)):
        matches = f"matches {_pattern(app, name)!r}"
        if facts[name].partition_count != count:
            has = f"has {counted(facts[name].partition_count, 'partition')}"
            found[name] = f"topic {name} {matches}, but it {has} and the other inputs have {count}: it is not read"
        elif name not in running and (problem := facts[name].denied or _not_replayable(settings, facts[name])):
            found[name] = f"topic {name} {matches}, but is left out: {problem}"
    return found


def _not_replayable(settings: Settings, topic: TopicFacts) -> UsageError | None:
    try:
        check_replayable(settings, [topic])
    except UsageError as error:
        return error
    return None


def partition_count(
    app: App[Any], facts: Mapping[str, TopicFacts], default: int | None = None, running: Collection[str] = ()
) -> int:
    """Return the partition count of the inputs, which must all have the same. If all are declared by patterns, the
    increments topic tells; if it does not exist yet, what matches now; `default` if nothing does. `running`: topics of
    patterns that are inputs.

    Raises:
        UsageError: the inputs are not co-partitioned.
        MissingInput: no topic matches.
    """
    own = names.increments_topic(app.app_id)
    known = [name for name in app.input_names if name not in app.internal_names]
    if not known:
        known = [own] if own in facts else matching(app, facts, running)
    listed = [name for name in (*known, *running) if name in facts and not is_broadcast(name)]
    counts = {name: facts[name].partition_count for name in listed}
    if not counts and default is not None:
        return default
    if not counts:
        patterns = (each for each in app.patterns if each.name not in app.broadcast_names)
        raise MissingInput(
            f"no topic of app {app.app_id!r} matches {' and '.join(repr(each.name) for each in patterns)}",
            hint="create one, with as many partitions as the app is to have, and start again",
        )
    if len(set(counts.values())) > 1:
        counts_text = ", ".join(f"{name} has {counted(count, 'partition')}" for name, count in counts.items())
        raise UsageError(
            f"inputs of app {app.app_id!r} are not co-partitioned: {counts_text}",
            hint="a key must have the same partition number in each input: copy one of them to a topic with as many"
            " partitions as the other, and name that topic in App(inputs=[…]); a small table may have any number of"
            " partitions with `app.table(…, broadcast=True)`",
            **counts,
        )
    return next(iter(counts.values()))


async def missing_topic(cluster: Cluster, app: App[Any], name: str) -> UsageError:
    """Make the error for an input or output that does not exist, with the nearest existing name."""
    others = [each for each in await cluster.topic_names() if not _is_internal(app, each)]
    near = difflib.get_close_matches(name, others, n=1)
    meant = f"did you mean {near[0]!r}? Otherwise " if near else ""
    kind = MissingInput if name in {topic.name for topic in app.inputs} else UsageError
    return kind(
        f"topic {name!r} of app {app.app_id!r} does not exist",
        hint=f"{meant}`snapreplay topics ensure {app_name(app)} --partitions N` creates it",
        topic=name,
    )


def _is_internal(app: App[Any], name: str) -> bool:
    """Say whether it is Kafka's own topic, or one of the app's: no input or output."""
    own = {f"{app.app_id}-{each}" for each in names.OWN_SUFFIXES}
    return name.startswith(("__", f"{app.app_id}{names.SAVEPOINT}")) or name in own


def incomplete(app: App[Any], missing: str) -> TopicsIncomplete:
    return TopicsIncomplete(
        f"topic {missing!r} is missing, but its counterpart exists: state of app {app.app_id!r} was lost or removed",
        hint="restore the topic from a backup or mirror; or, to continue with what its counterpart holds, create it"
        f" empty: `snapreplay topics ensure {app_name(app)} --replace-lost`, then `snapreplay run {app_name(app)}`,"
        " whose hint names what is lost and what can be accepted; or start over under a new app id:"
        f" {new_app()}",
        topic=missing,
    )


def check_internal_topics(app: App[Any], facts: Mapping[str, TopicFacts], count: int) -> None:
    """Raise StopError if an internal topic has another partition count than the other inputs."""
    for found in (facts[name] for name in app.internal_names if name in facts):
        if found.partition_count != count:
            raise StopError(
                f"internal topic {found.name} has {counted(found.partition_count, 'partition')}, but the other inputs"
                f" of app {app.app_id!r} have {count}",
                hint="give it another name in `app.topic(…)`, and run `snapreplay topics ensure"
                f" {app_name(app)}`; if no record of it is needed, delete it instead, and run the same command",
                topic=found.name,
                found=found.partition_count,
                expected=count,
            )


def check_own_topic(app: App[Any], facts: TopicFacts, count: int) -> None:
    """Raise StopError if partition count, cleanup.policy, retention or max.message.bytes cannot hold our log."""
    if facts.partition_count != count:
        raise StopError(
            f"topic {facts.name} has {counted(facts.partition_count, 'partition')}, but the inputs have {count}",
            hint=own_topic_grown_hint(app.app_id)
            if facts.partition_count > count
            else keys_moved_hint(app.app_id, facts.partition_count),
            found=facts.partition_count,
            expected=count,
        )
    for name, wanted in KEPT_FOR_EVER.items():
        found = facts.config.get(name, wanted)
        if found != wanted:
            raise StopError(
                f"topic {facts.name} has {name}={found}, but it must be {wanted}: state would be lost",
                hint=f"`{alter(facts.name, f'{name}={wanted}')}`",
                found=found,
                expected=wanted,
            )
    limit = int(facts.config.get("max.message.bytes", RECORD_BYTES_NEEDED))
    if limit < RECORD_BYTES_NEEDED:
        raise StopError(
            f"topic {facts.name} has max.message.bytes={limit}, but the app's records need {RECORD_BYTES_NEEDED}",
            hint=f"`{alter(facts.name, f'max.message.bytes={DEFAULT_LIMIT_BYTES}')}`",
            found=limit,
            expected=RECORD_BYTES_NEEDED,
        )


def check_replayable(settings: Settings, inputs: list[TopicFacts]) -> None:
    """Check that no compacted input has to be replayed: it has fewer records than the first pass, which gives another
    state for ever.

    Raises:
        UsageError: this app would have to replay one.
    """
    compacted = [names.place_of_input(f.name, 0)[0] for f in inputs if "compact" in f.config.get("cleanup.policy", "")]
    if not compacted:
        return
    deleted = f"`{alter(compacted[0], 'cleanup.policy=delete')}`"
    hint = f"`--set changelog.enabled=true --set restore.mode=changes`; or {deleted}"
    if _reads_changes(settings):
        return
    raise UsageError(f"input {compacted[0]} is compacted: it cannot be replayed", hint=hint, topic=compacted[0])


def _reads_changes(settings: Settings) -> bool:
    """Say whether a recovery needs no record that the app has processed."""
    return settings.changelog.enabled and settings.restore.mode == "changes"


def limits_of(names: Collection[str], facts: Mapping[str, TopicFacts]) -> dict[str, int]:
    """Map topic → max.message.bytes; without those that do not exist."""
    return {
        name: int(facts[name].config.get("max.message.bytes", DEFAULT_LIMIT_BYTES)) for name in names if name in facts
    }


async def limits_now(cluster: Cluster, known: Mapping[str, int]) -> dict[str, int]:
    """Ask afresh for the limits of the same topics; a topic that does not exist now keeps its own."""
    return {**known, **limits_of(known, await cluster.topics(known))}
