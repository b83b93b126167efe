"""The agenda against a plain dict, sorted again at each question."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay.state.agenda import Agenda
from snapreplay.state.steps import all_of

KEYS = st.sampled_from([bytes([n]) for n in range(6)])
TIMES = st.one_of(st.none(), st.integers(-3, 40), st.integers(0, 5000))
LIVES = st.sampled_from(["rollback", "stage", "seal", "merge", "drop"])
ACTIONS = st.lists(st.one_of(st.tuples(KEYS, TIMES), LIVES, st.integers(-5, 6000)), max_size=60)


def first_of(agenda, up_to_ms):
    all_of(agenda.ordering(up_to_ms))
    return agenda.first(up_to_ms)


class Plain:
    """Four dicts: as committed, as sealed, as staged, as it is."""

    def __init__(self):
        self.layers: list[dict[bytes, int]] = [{}, {}, {}, {}]
        self.sealed = False

    def set(self, key, at_ms):
        now = self.layers[3]
        now.pop(key, None)
        if at_ms is not None:
            now[key] = at_ms

    def live(self, what):
        committed, sealed, staged, now = self.layers
        match what:
            case "rollback":
                self.layers[3] = dict(staged)
            case "stage":
                self.layers[2] = dict(now)
            case "seal":
                self.layers[1] = dict(staged)
            case "merge":
                self.layers[0] = dict(sealed)
            case _:
                self.layers = [dict(committed) for _ in range(4)]

    def first(self, up_to_ms):
        due = [(at, key) for key, at in self.layers[3].items() if at <= up_to_ms]
        return min(due, default=None)


@given(ACTIONS)
@settings(max_examples=100)
def test_it_gives_the_first_due_key_of_what_is_there_now(actions):
    """Through any sets, rollbacks and dropped batches, it answers as a dict that is searched as a whole."""
    agenda, plain, sealed = Agenda(), Plain(), False
    for action in actions:
        if isinstance(action, tuple):
            key, at_ms = action
            agenda.set(key, plain.layers[3].get(key), at_ms)
            plain.set(key, at_ms)
        elif isinstance(action, int):
            assert first_of(agenda, action) == plain.first(action)
            first = min(plain.layers[3].values(), default=None)
            not_before = agenda.not_before_ms
            assert (not_before is None) == (first is None)
            assert first is None or not_before is None or not_before <= first
            assert agenda.next_ms == first
        elif (action == "seal" and sealed) or (action == "merge" and not sealed):
            continue
        else:
            sealed = action == "seal" or (sealed and action not in ("merge", "drop"))
            getattr(agenda, action)()
            plain.live(action)
        assert len(agenda) == len(plain.layers[3])


def test_many_keys_of_one_moment_come_in_order_and_in_steps():
    """No step looks at more than a run; taking and adding meanwhile changes nothing of the order."""
    keys = [n.to_bytes(3, "big") for n in range(10_000)]
    agenda = Agenda()
    for key in random.Random(1).sample(keys, len(keys)):
        agenda.set(key, None, 7)
    assert agenda.next_ms == 0, "of so many only the second is known"
    assert sum(1 for _ in agenda.ordering(7)) == 20
    assert agenda.next_ms == 7
    taken = []
    while due := first_of(agenda, 7):
        agenda.set(due[1], 7, None if len(due[1]) > 3 else 9)
        taken.append(due[1])
        if len(taken) == 5000:
            agenda.set(keys[5000] + b"x", None, 7)
    assert taken == [*keys[:5001], keys[5000] + b"x", *keys[5001:]]


def test_what_comes_and_goes_leaves_nothing():
    """A key that is added and removed for ever, long before it is due, takes no room."""
    agenda = Agenda()
    agenda.load(b"kept", None, 0)
    for round_ in range(1000):
        agenda.load(b"k", None, 50_000 + round_ % 3)
        agenda.load(b"k", 50_000 + round_ % 3, None)
    assert (len(agenda._numbers), len(agenda._buckets)) == (2, 2)
