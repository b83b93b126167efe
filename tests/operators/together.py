"""An act on a whole cluster, and what became of each app on it."""

from __future__ import annotations

import tempfile
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

from tests.operators.acts import Act
from tests.operators.commands import Command
from tests.operators.ground import Ground
from tests.operators.matrix import Cell, Ending, after, before, first_part, second_part, verdict


def carried_out_together(
    kind: type[Act], cells: Sequence[Cell], at_a_time: int
) -> Iterator[Ending]:
    """One cluster for all these cells."""
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
        command = Command(kind.name, kind.tool, lambda _: None)
        under_way = [
            pool.submit(_verdict, cell, ground, command)
            for cell, ground in zip(cells, grounds, strict=True)
        ]
        for done in as_completed(under_way):
            yield done.result()


def _verdict(cell: Cell, ground: Ground, command: Command) -> Ending:
    try:
        return verdict(cell, ground, command)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other cells go on
        traceback.print_exc()
        return Ending(cell, wrong=[f"{type(error).__name__}: {str(error)[:1500]}"])
    finally:
        ground.kill()
