"""The choice of the fault at each request: drawn from the seed, counted by kind.

Each seed has its own selection of kinds and its own rates, so that some histories are full of one thing and free of
another. Between two faults of a site lies a drawn number of requests.
"""

import random
from collections import Counter
from collections.abc import Collection

CRASHES = ("crash_before", "crash_after")
STALLS = ("stall_before", "stall_after")

MENU: dict[str, tuple[str, ...]] = {
    "fence": ("lost", "answer_lost", "late", "slow", *CRASHES, *STALLS),
    "fill": ("deadline", "late", "unanswered", "fenced", "crash_between", "stall_between"),
    "end": ("lost", "answer_lost", "late", "unanswered", "late_copy", "slow", *CRASHES, *STALLS),
    "bounds": ("lost", "slow", "renew", "crash_before", "stall_after"),
    "read": ("slow", "stuck", "renew", "crash_before", "stall_after"),
    "poll": ("empty", "lost", "slow", "crash_before", "stall_after"),
    "append": ("lost", "answer_lost", "late", "slow", "refused", *CRASHES, *STALLS),
    "delete": ("lost", "answer_lost", "late", "slow", *CRASHES),
    "connect": ("lost", "slow", "crash_before"),
    "admin": ("lost", "slow"),
    "group": ("lost", "slow"),
}
"""Site of a request → what may go wrong there. `network` and `producer` say what each one is."""

MEAN_CALLS: dict[str, float] = {
    "fence": 4,
    "fill": 10,
    "end": 7,
    "bounds": 18,
    "read": 18,
    "poll": 60,
    "append": 5,
    "delete": 3,
    "connect": 25,
    "admin": 4,
    "group": 1.2,
}
"""Requests between two faults of a site, on average, at intensity 1."""

APART: dict[str, tuple[str, ...]] = {
    "poll": ("cut", "throttled"),
    "read": ("cut", "throttled"),
    "bounds": ("throttled",),
    "end": ("throttled",),
    "append": ("throttled",),
}
"""What else may go wrong there, in histories that have such faults: the others stay what they were."""

LIFE_ENDING = (*CRASHES, "crash_between")
PAUSING = (*STALLS, "stall_between")


class Faults:
    """`active` is switched off when the world heals."""

    def __init__(self, rng: random.Random, crashes_max: int, stalls_max: int, apart: Collection[str] = ()) -> None:
        """Take `apart`: the kinds of faults of `APART` that this history has."""
        self.active = False
        self.owners_spared = False
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._intensity = rng.choice((0.3, 0.6, 1.0, 2.0))
        kinds = sorted({kind for menu in MENU.values() for kind in menu})
        allowed = {kind for kind in kinds if rng.random() < 0.6}
        self._menu = {site: [kind for kind in MENU[site] if kind in allowed] for site in MENU}
        self._left = {site: self._gap(site) for site in MENU}
        self._crashes_left, self._stalls_left = crashes_max, stalls_max
        self._apart = {site: kinds for site, menu in APART.items() if (kinds := [k for k in menu if k in apart])}
        self._apart_left = dict.fromkeys(self._apart, 1.0)

    def spare_owners(self) -> None:
        """Let no process die from now on, and answer every fence: what is in memory may be the only copy."""
        self.owners_spared = True  # also from what was drawn already
        self._crashes_left = 0
        self._menu["fence"] = []

    def draw(self, site: str) -> str | None:
        """The fault of this request; None, most of the time."""
        if not self.active:
            return None
        self._left[site] -= 1
        if self._left[site] > 0:
            return self._draw_apart(site)
        self._left[site] = self._gap(site)
        if not self._menu[site]:
            return None
        kind = self._rng.choice(self._menu[site])
        if not self._afford(kind):
            return None
        self.counts[f"{site}.{kind}"] += 1
        return kind

    def _draw_apart(self, site: str) -> str | None:
        if site not in self._apart:
            return None
        self._apart_left[site] -= 1
        if self._apart_left[site] > 0:
            return None
        self._apart_left[site] = self._rng.expovariate(self._intensity / MEAN_CALLS[site])
        kind = self._rng.choice(self._apart[site])
        self.counts[f"{site}.{kind}"] += 1
        return kind

    def _afford(self, kind: str) -> bool:
        if kind in LIFE_ENDING:
            self._crashes_left -= 1
            return self._crashes_left >= 0
        if kind in PAUSING:
            self._stalls_left -= 1
            return self._stalls_left >= 0
        return True

    def _gap(self, site: str) -> int:
        return 1 + int(self._rng.expovariate(self._intensity / MEAN_CALLS[site]))


def fault_kinds() -> list[str]:
    """All that can be drawn, as "site.kind"."""
    return [f"{site}.{kind}" for every in (MENU, APART) for site, menu in every.items() for kind in menu]
