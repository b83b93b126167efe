"""Shows before a deployment that a new version of an app can continue with the state that the old one wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from snapreplay.app.app import App, check_app
from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.harness import Diverged, Harness
from snapreplay.app.made_record import checked_records
from snapreplay.app.record import RawRecord, id_of
from snapreplay.app.topic import BroadcastTopic, Topic
from snapreplay.counted import counted
from snapreplay.errors import RecordId, SnapreplayError, UsageError
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.stores import Stores, maps_of
from snapreplay.testing.checks import Course, trace, unrolled


@dataclass(frozen=True)
class UpgradeReport:
    """The report of a `check_upgrade`.

    Attributes:
        cuts: the number of takeovers, each after another record.
        other_outputs: records for which the new app, with the old app's state, sends other outputs than the old app.
        no_way_back: why the old app could not take over again in a rollback; empty if it could.
        other_state: records after which the new app has another state than the old app, whose state is upgraded
            first.
        other_inputs: inputs that only one of the apps has, one sentence each; `snapreplay inputs` must record them
            before the new app starts.
    """

    cuts: int
    other_outputs: tuple[RecordId, ...]
    other_state: tuple[RecordId, ...]
    no_way_back: str = ""
    other_inputs: tuple[str, ...] = ()


def check_upgrade(
    old_app: App[Any],
    new_app: App[Any],
    records: Iterable[RawRecord],
    *,
    add: Collection[Topic[Any, Any] | str] | None = None,
    retire: Collection[Topic[Any, Any] | str] | None = None,
    policy: ErrorPolicy = ErrorPolicy.FAIL,
) -> UpgradeReport:
    """Let `new_app` take over from `old_app` before the first record and after each one. It restores the old state
    from a snapshot and the changes since then, reads every entry with its own types, and applies the next record.

    Each takeover upgrades a state of an older schema_version. The state after the next record is compared with the
    old app's upgraded state after that record.

    A record of an input that only one app has is applied by that app only.

    The report names the records for which the new app sends other outputs or has another state. A few hundred records
    are enough.

    Args:
        add: what only the new app has: inputs as topics, stores of `Stores` by name. None: not checked.
        retire: what only the old app has, in the same form.

    Raises:
        Diverged: the new app cannot take over, cannot read an entry, or cannot apply a record that the old app can;
            names the record. Or `add` or `retire` differs from what it adds or retires.
        RecordError: policy FAIL, and the old app cannot apply a record.
        UsageError: no records, or one is of no input of either app; or the service would refuse the new app: another
            app id, or a schema_version to which it has no upgrade.
    """
    check_app(old_app)
    check_app(new_app)
    given = unrolled(old_app, Course(checked_records(records), policy)).records
    _check_comparable(old_app, new_app, given)
    _check_difference("add", add, old_app, new_app)
    _check_difference("retire", retire, new_app, old_app)
    _check_retired(new_app, retire or ())
    steps = iter(trace(old_app, Course([each for each in given if old_app.input_named(each.topic)], policy)))
    old: Harness[Any] = Harness(old_app, policy=policy, feeds_internal=False)
    is_upgraded = old_app.schema_version != new_app.schema_version
    heir, other_outputs, other_state = old, [], []
    for number, one in enumerate(given):
        if number == 1 + len(given) // 2:
            old.snapshot()  # the cuts from here on begin at a snapshot with entries
        heir = _taken_over(old, new_app, number)
        step = next(steps) if old_app.input_named(one.topic) else None
        if new_app.input_named(one.topic) is None:
            old.feed_batch([one])
            continue
        sent, dead = len(heir.all_outputs), len(heir.dead_letters)
        try:
            record_id = id_of(heir.feed_batch([one])[0])
        except SnapreplayError as error:
            raise Diverged(f"{_cut(number)}: the new app fails where the old one does not: {error}") from error
        if step is None:
            continue
        if [*heir.all_outputs[sent:], *heir.dead_letters[dead:]] != step.outputs:
            other_outputs.append(record_id)
        old.feed_batch([one])
        expected = str(_taken_over(old, new_app, number + 1).digest) if is_upgraded else step.digest
        if str(heir.digest) != expected:
            other_state.append(record_id)
    _taken_over(old, new_app, len(given))
    way_back = ""
    try:
        heir.handed_over(old_app)
    except (SnapreplayError, Diverged) as error:
        way_back = str(error)
    inputs = tuple(_other_inputs(old_app, new_app))
    return UpgradeReport(len(given) + 1, tuple(other_outputs), tuple(other_state), way_back, inputs)


def _check_difference(
    word: str, expected: Collection[Topic[Any, Any] | str] | None, without: App[Any], having: App[Any]
) -> None:
    """Raise Diverged if what only `having` has is not what is expected."""
    if expected is None:
        return
    if isinstance(expected, str | Topic):
        raise UsageError(f"{word}={expected!r} is no collection", hint=f"pass `{word}=[…]`")
    only = _parts(having) - _parts(without)
    said = {f"store {each!r}" if isinstance(each, str) else f"input {each.name}" for each in expected}
    for part in sorted(only - said):
        raise Diverged(f"{having.app_id}: the new app {word}s {part}, which is not in {word}=")
    for part in sorted(said - only):
        raise Diverged(f"{having.app_id}: {part} is in {word}=, but the new app does not {word} it")


def _check_retired(new_app: App[Any], retire: Collection[Topic[Any, Any] | str]) -> None:
    state = new_app.state()
    declared = state.retired if isinstance(state, Stores) else ()
    for name in retire:
        if isinstance(name, str) and name not in declared:
            raise Diverged(
                f"{new_app.app_id}: the new app leaves the store {name!r} out and does not retire it: a partition with"
                f" entries in it would fail; add `retired=({name!r},)` to its Stores"
            )


def _parts(app: App[Any]) -> set[str]:
    stores = {f"store {name or DEFAULT_STORE!r}" for name in maps_of(app.state())}
    return stores | {f"input {topic.name}" for topic in app.inputs}


def _other_inputs(old_app: App[Any], new_app: App[Any]) -> Iterator[str]:
    old, new = ({_named(topic) for topic in app.inputs} for app in (old_app, new_app))
    by_itself = {
        *new_app.internal_names,
        *(_named(topic) for topic in new_app.inputs if isinstance(topic, BroadcastTopic)),
    }
    for name in sorted(new - old - by_itself):
        yield f"input {name} is added: run `snapreplay inputs` with the new version before it starts"
    for name in sorted(old - new):
        yield f"input {name} is retired: run `snapreplay inputs` with the new version before it starts"


def _named(topic: Topic[Any, Any]) -> str:
    return f"{topic.name} (broadcast)" if isinstance(topic, BroadcastTopic) else topic.name


def _taken_over(old: Harness[Any], new_app: App[Any], number: int) -> Harness[Any]:
    try:
        heir, again = (old.handed_over(new_app, seed=seed) for seed in (number, number + 1))
    except (SnapreplayError, Diverged) as error:
        raise Diverged(f"{_cut(number)}: the new app cannot take over the state: {error}") from error
    if heir.digest != again.digest:
        raise Diverged(f"{_cut(number)}: the upgrade gives another state each time")
    return heir


def _cut(number: int) -> str:
    return f"after {counted(number, 'record')}"


def _check_comparable(old_app: App[Any], new_app: App[Any], records: list[RawRecord]) -> None:
    if not records:
        raise UsageError(f"{old_app.app_id}: check_upgrade needs at least one record")
    for each in records:
        if not (old_app.input_named(each.topic) or new_app.input_named(each.topic)):
            raise UsageError(f"{old_app.app_id}: {each.topic} is an input of neither app")
    older, newer = old_app.schema_version, new_app.schema_version
    if older != newer and not new_app.upgrades_from(older):
        raise UsageError(f"{old_app.app_id}: the new app has no upgrade from schema_version {older} to {newer}")
    if new_app.app_id != old_app.app_id:
        raise UsageError(
            f"{old_app.app_id}: the new app has another app id, so the service would refuse it: {new_app.app_id}, not"
            f" {old_app.app_id}"
        )
