"""Carry out the operators' commands on a real broker, several at a time, and say what became of each app.

python -m tests.operators [--only TEXT] [--some N --seed S] [--table]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

from snapreplay.devbroker.broker import LocalBroker
from tests.operators.acts import ACTS, Act
from tests.operators.commands import COMMANDS, Command
from tests.operators.ground import Ground
from tests.operators.matrix import (
    WHENS,
    Cell,
    Ending,
    after,
    all_cells,
    before,
    carried_out,
    first_part,
    second_part,
    verdict,
)

AT_A_TIME = 4


def main() -> int:
    arguments = _arguments()
    cells = [cell for cell in all_cells((*COMMANDS, *ACTS)) if arguments.only in str(cell)]
    if arguments.some:
        cells = random.Random(arguments.seed).sample(cells, min(arguments.some, len(cells)))
    print(f"{len(cells)} cells, seed {arguments.seed}")
    endings = []
    for ending in _carried_out(cells, arguments.at_a_time):
        endings.append(ending)
        print(f"{len(endings):4} {ending.cell}: {ending}  {ending.done or ''}", flush=True)
    if arguments.table:
        print(table(endings))
    return int(any(ending.wrong for ending in endings))


def _carried_out(cells: list[Cell], at_a_time: int) -> Iterator[Ending]:
    alone = [cell for cell in cells if cell.command in COMMANDS]
    if alone:
        yield from _one_by_one(alone, at_a_time)
    for name, act in ACTS.items():
        here = [cell for cell in cells if cell.command == name]
        if here:
            yield from _together(act, here, at_a_time)


def _one_by_one(cells: list[Cell], at_a_time: int) -> Iterator[Ending]:
    with tempfile.TemporaryDirectory() as folder, LocalBroker() as broker, ThreadPoolExecutor(at_a_time) as pool:
        under_way = [pool.submit(_one, cell, broker.bootstrap_servers, Path(folder)) for cell in cells]
        for done in as_completed(under_way):
            yield done.result()


def _one(cell: Cell, servers: str, folder: Path) -> Ending:
    ground = Ground(servers, f"op-{uuid.uuid4().hex[:8]}", cell.kept, folder)
    return _ended(cell, ground, lambda: carried_out(cell, ground))


def _together(kind: type[Act], cells: Sequence[Cell], at_a_time: int) -> Iterator[Ending]:
    """Carry out an act on a whole cluster, for all these cells."""
    with ExitStack() as kept:
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory()))
        act = kept.enter_context(kind(folder))
        pool = kept.enter_context(ThreadPoolExecutor(at_a_time))
        grounds = []
        for cell in cells:
            ground = Ground(act.servers, f"op-{uuid.uuid4().hex[:8]}", cell.kept, folder)
            kept.callback(ground.close)
            grounds.append(ground)

        def each(step: Callable[[Ground], None]) -> None:
            list(pool.map(step, grounds))

        each(Ground.prepare)
        act.prepared(grounds)
        each(first_part)
        act.halfway(grounds)
        each(second_part)
        act.processed(grounds)
        moments = {ground.app_id: cell.when for ground, cell in zip(grounds, cells, strict=True)}
        each(lambda ground: before(ground, moments[ground.app_id]))
        act.carry_out(grounds)
        each(Ground.forget_what_is_cut)
        each(lambda ground: after(ground, moments[ground.app_id]))
        command = Command(kind.name, lambda _: None)

        def judged(cell: Cell, ground: Ground) -> Ending:
            return _ended(cell, ground, lambda: verdict(cell, ground, command))

        under_way = [pool.submit(judged, cell, ground) for cell, ground in zip(cells, grounds, strict=True)]
        for done in as_completed(under_way):
            yield done.result()


def _ended(cell: Cell, ground: Ground, work: Callable[[], Ending]) -> Ending:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other cells go on
        traceback.print_exc()
        return Ending(cell, wrong=[f"{type(error).__name__}: {str(error)[:1500]}"])
    finally:
        ground.close()


def table(endings: list[Ending]) -> str:
    """A row per command, a column per moment; what differs by the kind of app stands one below the other."""
    lines = ["| command | " + " | ".join(WHENS) + " |", "| --- |" + " --- |" * len(WHENS)]
    for name in (*COMMANDS, *ACTS):
        row = [_ending_of(endings, name, when) for when in WHENS]
        if any(row):
            lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def _ending_of(endings: list[Ending], name: str, when: str) -> str:
    here = [each for each in endings if (each.cell.command, each.cell.when) == (name, when)]
    return "<br>".join(sorted({str(each) for each in here}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.operators", description=__doc__)
    parser.add_argument("--only", default="", help="cells whose name holds this text")
    parser.add_argument("--some", type=int, default=0, help="that many, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-a-time", type=int, default=AT_A_TIME)
    parser.add_argument("--table", action="store_true", help="for docs/internals/results.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
