"""The place in an input where an accepted state goes on, and in words what that means for the records around it. Pure.

`position` is that of the accepted state, `reached` how far the input had been processed: behind `position` when the
state is an older one, None when no increment is left that says so.
"""

from __future__ import annotations

AGAIN = "processed again, outputs written a second time"
NO_EFFECT = "their outputs stay, their effect on the state is lost"


def same_log(topic: str, position: int, reached: int | None, start_offset: int) -> tuple[int, str]:
    """Place the state in an input that is the log which was processed, or begins now at `start_offset`.

    Returns:
        The offset to go on at, and a sentence; "" when nothing is lost, skipped or repeated.
    """
    begin = max(position, start_offset)
    parts = []
    if reached is not None and reached < position:  # the state knows more than the log that is left
        reached = None
    if reached is None:
        if position < begin:
            parts.append(
                f"offsets {position} to {begin} are gone: those that were processed keep their outputs and have"
                " no effect on the state, the others are never processed"
            )
        parts.append(f"whatever was processed from there on is {AGAIN}")
    else:
        gone = min(begin, reached)
        if position < gone:
            parts.append(f"offsets {position} to {gone} are gone: {NO_EFFECT}")
        if begin < reached:
            parts.append(f"offsets {begin} to {reached} are {AGAIN}")
        if reached < begin:
            parts.append(f"offsets {reached} to {begin} are never processed")
    return begin, f"{topic}: goes on at offset {begin}; {'; '.join(parts)}" if parts else ""


def other_log(
    topic: str,
    position: int,
    reached: int,
    start_offset: int,
    common_end: int | None,
    moved: tuple[int, int] | None = None,
) -> tuple[int, str]:
    """Place the state in an input that was replaced or cut: up to `common_end` it still holds what was processed;
    None: nothing at its offset. `moved`: where the last processed record was, and where it is now."""
    reached = max(reached, position)  # the state may know more than the log that is left
    if common_end is None and moved is not None:
        was_at, is_at = moved
        return start_offset, (
            f"{topic}: holds the last record that was processed at offset {is_at} instead of {was_at}: it was loaded"
            f" again with shifted offsets. It is read as a new log from its start, offset {start_offset}: offsets"
            f" {start_offset} to {is_at + 1} were processed before, as far as they are the same records, and are"
            f" {AGAIN}"
        )
    lost = f"offsets {position} to {reached}" if position < reached else ""
    if common_end is None:
        old = f"{lost} of the old log have no effect on the state; " if lost else ""
        return start_offset, (
            f"{topic}: holds none of the records that were processed at their offsets: it is read as a new log from its"
            f" start, offset {start_offset}; {old}the old log's records from offset {reached} on are never processed,"
            f" if they are not in the new one; a record that was processed and is in the new log, too, is {AGAIN}"
        )
    begin = max(min(common_end, position), start_offset)
    parts = []
    if position < begin:
        parts.append(f"offsets {position} to {begin} are gone: {NO_EFFECT}")
    if begin < common_end:
        parts.append(f"offsets {begin} to {common_end} are {AGAIN}")
    held_end = max(common_end, position)
    if common_end < position:
        parts.append(
            f"offsets {common_end} to {position} of the old log keep their effect on the state"
        )
    if held_end < reached:
        parts.append(f"offsets {held_end} to {reached} of the old log are gone: {NO_EFFECT}")
    parts.append(
        f"records of offsets {common_end} to {reached} that are still the same are processed again"
    )
    return begin, (
        f"{topic}: holds the records that were processed up to offset {common_end}, and other ones from there on: goes"
        f" on at offset {begin}; {'; '.join(parts)}"
    )
