"""Windows and sessions by hand: every window and every session is searched, no line of the product's.

Events are (key, time) in the order in which they come; their numbers count from 0. What closes is (key, start, end,
numbers of its events).
"""

Event = tuple[str, int]
Window = tuple[str, int, int, tuple[int, ...]]


def windows(given: list[Event], size_ms: int, every_ms: int, grace_ms: int) -> tuple[list[Window], list[int]]:
    """Return all windows, and the numbers of the late events."""
    found: dict[Event, list[int]] = {}
    late, now_ms = [], -1
    for number, (key, at_ms) in enumerate(given):
        now_ms = max(now_ms, at_ms)
        first_ms = at_ms // every_ms * every_ms
        starts = [start for start in range(first_ms, at_ms - size_ms, -every_ms) if start <= at_ms < start + size_ms]
        for start in starts:
            if start + size_ms + grace_ms > now_ms:
                found.setdefault((key, start), []).append(number)
            elif number not in late:
                late.append(number)
    return sorted((key, at, at + size_ms, tuple(numbers)) for (key, at), numbers in found.items()), late


def sessions(given: list[Event], gap_ms: int, grace_ms: int) -> tuple[list[Window], list[int]]:
    """Return all sessions, and the numbers of the late events."""
    still: list[tuple[str, list[tuple[int, int]]]] = []
    done: list[Window] = []
    late, now_ms = [], -1
    for number, (key, at_ms) in enumerate(given):
        now_ms = max(now_ms, at_ms)
        for session in [each for each in still if max(each[1])[0] + gap_ms + grace_ms <= now_ms]:
            still.remove(session)
            done.append(_closed(*session, gap_ms))
        near = [(k, t) for k, t in still if k == key and min(t)[0] - gap_ms < at_ms < max(t)[0] + gap_ms]
        if not near and at_ms + gap_ms + grace_ms <= now_ms:
            late.append(number)
            continue
        still = [each for each in still if each not in near]
        still.append((key, [(at_ms, number), *(each for _, times in near for each in times)]))
    return sorted(done + [_closed(*session, gap_ms) for session in still]), late


def _closed(key: str, times: list[tuple[int, int]], gap_ms: int) -> Window:
    return key, min(times)[0], max(times)[0] + gap_ms, tuple(sorted(number for _, number in times))
