"""The matrix of what becomes of an app after an operator's command: carried out, the app's own words followed, the
result judged.

An app that goes on must be exact. One that stops must say why, and what it says must lead to an app that is exact, or
that lost no more than it said. Then it is killed once more: what the log holds is what counts.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.operators.commands import COMMANDS, HALFWAY, POSITION, Command
from tests.operators.ground import KEYS, Ground, Kept, Seen

WHENS = ("running", "frozen", "stopped")
KEPTS = tuple(
    Kept(is_map, changes, snapshot)
    for is_map in (True, False)
    for changes in ((True, False) if is_map else (True,))  # without a map there are never any
    for snapshot in (True, False)
)
ROUNDS_MAX = 5
PROCESSES = "processes"
SAID_FOR_LONG_SECONDS = 40.0
NEW_APP = 'App("NEW-ID"'
STATE_IS_LOST = "--state-is-lost"
AGAIN = "second time"


@dataclass(frozen=True)
class Cell:
    """One command at one moment to one kind of app."""

    command: str
    when: str
    kept: Kept

    def __str__(self) -> str:
        return f"{self.command} / {self.when} / {self.kept}"


@dataclass
class Ending:
    """The ending of a cell. `said`: kinds of the problems that were named, in order; `done`: what was typed because
    of it; `wrong`: what nobody was told of, empty if all is well."""

    cell: Cell
    said: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    processes: bool = False

    def __str__(self) -> str:
        if self.wrong:
            return "WRONG: " + "; ".join(self.wrong)
        last = (PROCESSES,) if self.processes else ()
        return " → ".join([*self.said, *last])


def all_cells(names: Iterable[str] = COMMANDS) -> list[Cell]:
    return [Cell(name, when, kept) for name in names for when in WHENS for kept in KEPTS]


def carried_out(cell: Cell, ground: Ground) -> Ending:
    """Carry out everything from a new app to the verdict."""
    command = COMMANDS[cell.command]
    ground.prepare()
    first_part(ground)
    second_part(ground)
    before(ground, cell.when)
    command.carry_out(ground)
    after(ground, cell.when)
    return verdict(cell, ground, command)


def verdict(cell: Cell, ground: Ground, command: Command) -> Ending:
    """Return what became of it."""
    ending = Ending(cell)
    if not _processes(ground, command, ending):
        return ending
    decided, since = ground.decisions(), ground.next_number
    ground.feed(KEYS)
    ground.until(ground.has_processed_all, "processed")
    ground.kill()
    ground.start()
    if _processes(ground, command, ending):
        later = ground.decisions()
        if later != decided:
            since = ground.next_number
        ground.feed(2 * KEYS)
        ground.until(ground.has_processed_all, "processed after a kill")
        ending.processes = True
        ending.wrong += judged(ground, decided + later, since)
    return ending


def _processes(ground: Ground, command: Command, ending: Ending) -> bool:
    """Say whether the app processes what is written now, by itself or after what it asked for was done."""
    remedies = [command.remedy] if command.remedy else []
    for _ in range(ROUNDS_MAX):
        seen = _settled(ground)
        if seen.phase == "live":
            return True
        if not ending.said or ending.said[-1] != seen.kind:
            ending.said.append(seen.kind)
        if command.final or (NEW_APP in seen.hint and not commands_in(seen.hint)):
            return False  # said, and nothing helps this app
        if _followed(ground, seen, ending):
            continue
        if ending.wrong:
            return False
        if not remedies:
            ending.wrong.append(f"no way out of {seen.kind}: {seen.problem} (hint: {seen.hint})")
            return False
        remedies.pop()(ground)
        ending.done.append("taken back")
        if seen.phase in ("failed", "exited"):
            ground.look_again()
    ending.wrong.append(f"it never processed again: {ending.said}, {ending.done}")
    return False


def first_part(ground: Ground) -> None:
    """70 payments are processed, and there is a snapshot, if there is to be one."""
    ground.start()
    ground.feed(60)
    ground.until(lambda: ground.position() == 60, "processed")
    if ground.kept.snapshot:
        ground.trigger_snapshot()
    ground.feed(HALFWAY - 60)
    ground.until(lambda: ground.position() == HALFWAY, "processed")


def second_part(ground: Ground) -> None:
    """All 80 are processed."""
    ground.feed(POSITION - HALFWAY)
    ground.until(lambda: ground.position() == POSITION, "processed")


def before(ground: Ground, when: str) -> None:
    """It stands still, or is stopped, if it is to be."""
    if when == "stopped":
        ground.kill()
    if when == "frozen":
        ground.freeze()


def after(ground: Ground, when: str) -> None:
    """It goes on, or starts."""
    if when == "frozen":
        ground.thaw()
    if when == "stopped":
        ground.start()


def _settled(ground: Ground) -> Seen:
    """It processes a record that was written now, or says what stands in its way: what it will not get over by itself,
    what it has a command for, or what it has said for long."""
    fed = ground.input_exists()
    if fed:
        ground.feed(1)
    found: list[Seen] = []
    since = [time.monotonic()]

    def ended() -> bool:
        seen = ground.seen()
        if not found or seen.kind != found[0].kind:
            since[0] = time.monotonic()
        found[:] = [seen]
        if seen.phase == "live" and not seen.problem:
            return fed and ground.has_processed_all()
        for_long = time.monotonic() - since[0] > SAID_FOR_LONG_SECONDS
        return seen.phase in ("failed", "exited") or bool(seen.problem and (for_long or commands_in(seen.hint)))

    ground.until(ended, "settled")
    return found[0]


def commands_in(hint: str) -> list[str]:
    """Return what a hint says to type, without the words that only look, and without the way to a new app id."""
    ways = [way for way in hint.split("; or ") if NEW_APP not in way]
    typed = re.findall(r"`snapreplay ([^`]+)`", "; or ".join(ways))
    return [words for words in typed if not words.startswith(("run", "audit", "doctor"))]


def _followed(ground: Ground, seen: Seen, ending: Ending) -> bool:
    """Type what the hint says, then let the app look again. False: it holds no command of ours."""
    typed = commands_in(seen.hint)
    accepts = [words for words in typed if words.startswith("accept")]
    for words in accepts[:1] or typed:  # this app has run before
        if not _typed(ground, words, ending):
            return False
    if typed:
        ground.look_again()
    return bool(typed)


def _typed(ground: Ground, words: str, ending: Ending) -> bool:
    """Type a command as printed; one that is refused may say itself what to type instead, after the app was
    stopped."""
    ready = words.replace("MODULE:APP", "PROGRAM").replace("TEXT", "tried").replace("--partitions N", "--partitions 1")
    ending.done.append(words.split(maxsplit=1)[0])
    done = ground.command(ready)
    if done.returncode == 0:
        ground.told_again |= AGAIN in done.stdout
        return True
    instead = commands_in(done.stderr.partition("hint: ")[2])
    if instead and STATE_IS_LOST in instead[-1]:
        ground.state_is_lost = True
        ground.kill()
        # It is a member of the group until its session is over.
        ground.until(lambda: ground.command(instead[-1]).returncode == 0, "begun anew")
        return True
    ending.wrong.append(f"`snapreplay {words}` failed: {done.stderr.strip()[-600:]}")
    return False


def judged(ground: Ground, decided: str, since: int) -> list[str]:
    """Return what the outputs and the state have lost or doubled without a word. What `decided` tells excuses
    payments below `since` only, those that were sent before the app processed again; and only those whose records
    an operator deleted may never be processed."""
    outputs = ground.outputs()
    counts = Counter(each["number"] for each in outputs)
    missing = set(range(ground.outputs_gone, ground.next_number)) - counts.keys()
    doubled = {number for number, count in counts.items() if count > 1}
    lost = missing - ground.cut - (ground.removed if "never processed" in decided else set())
    told_again = ground.state_is_lost or ground.told_again or AGAIN in decided
    again = doubled - set(range(since if told_again else 0))
    wrong = []
    if lost:
        wrong.append(f"payments {sorted(lost)[:5]}… ({len(lost)}) have no output")
    if again:
        wrong.append(f"payments {sorted(again)[:5]}… ({len(again)}) have two outputs")
    first = since if "effect" in decided else 0
    applied = set(range(first, ground.next_number)) - missing
    return [*wrong, *_wrong_accounts(outputs, applied, from_nothing=first == 0)][:4]


def _wrong_accounts(outputs: list[dict[str, int]], applied: set[int], *, from_nothing: bool) -> list[str]:
    """Follow per key how its account grew over these payments; the first one says where it stood, or it was empty."""
    last = {each["number"]: each for each in outputs}
    wrong = []
    for key in range(KEYS):
        numbers = sorted(number for number in applied if number % KEYS == key)
        before = {"n": 0, "sum": 0} if from_nothing else last[numbers[0]]
        counted = numbers if from_nothing else numbers[1:]
        grown = [last[numbers[-1]][field] - before[field] for field in ("n", "sum")]
        if grown != [len(counted), sum(counted)]:
            wrong.append(f"k{key} grew by {grown}; by hand by {[len(counted), sum(counted)]}")
    return wrong
