"""Changing what `get` handed out as its default is lost: the watch says so, and only then."""

from decimal import Decimal

import msgspec
import pytest

from snapreplay.app.app import App
from snapreplay.app.harness import Harness
from snapreplay.app.lost_change import DefaultWatch, LostChange
from snapreplay.app.made_record import record
from snapreplay.app.record import RawRecord
from snapreplay.app.topic import Topic
from snapreplay.state.map import MapState
from snapreplay.testing import check

RECORDS = [RawRecord("payments", 0, 7, 0, None, None)]


def watched(key="ada", value=None):
    state: MapState[str, dict[str, int]] = MapState(str, dict, default=dict)
    if value is not None:
        state[key] = value
    return state, DefaultWatch(state)


def test_a_changed_default_is_reported_with_record_and_key():
    """The message holds before, after and the ways out."""
    state, watch = watched()
    state.get("ada", {"n": 0})["n"] = 5
    with pytest.raises(LostChange) as caught:
        watch.check(RECORDS)
    for word in ("payments-0-7", "'ada'", "{'n': 0}", "{'n': 5}", "default="):
        assert word in str(caught.value)


@pytest.mark.parametrize("how", ["unchanged", "stored", "found", "none", "forgotten"])
def test_nothing_else_is_reported(how):
    """A default that is only read, or stored after all, or not used because the key was there, is fine."""
    state, watch = watched(value={"n": 1} if how == "found" else None)
    default = None if how == "none" else {"n": 0}
    got = state.get("ada", default)
    if how in {"stored", "found", "forgotten"}:
        got["n"] = 9
    if how == "stored":
        state["ada"] = got
    if how == "forgotten":
        watch.forget()
    watch.check(RECORDS)
    watch.check(RECORDS)


def test_a_watched_state_is_still_a_map_state():
    """Handlers may test its type; other states are left alone."""
    state, _ = watched()
    assert isinstance(state, MapState)
    DefaultWatch(object()).check(RECORDS)


class Account(msgspec.Struct):
    n: int = 0


def or_new(state, key):
    account = state.get(key) or Account()
    account.n += 1


def if_none(state, key):
    account = state.get(key)
    if account is None:
        account = Account(n=5)
    account.n += 1


def walrus(state, key):
    if not (account := state.get(key) or {}):
        account["n"] = 1


def stores_it(state, key):
    account = state.get(key) or Account()
    account.n += 1
    state[key] = account


def stores_it_elsewhere(state, key):
    account = state.get(key) or Account()
    account.n += 1
    state["other"] = account


def only_reads(state, key):
    account = state.get(key) or Account()
    assert account.n == 0


def counts_on(state, key):
    total = state.get(key) or Decimal(0)
    total = total + 1
    assert total == 1


def only_asks(state, key):
    account = state.get(key)
    if account is None:
        account = 5
    assert account == 5


@pytest.mark.parametrize(
    ("does", "lost"),
    [
        (or_new, "Account(n=1)"),
        (if_none, "Account(n=6)"),
        (walrus, "{'n': 1}"),
        (stores_it, None),
        (stores_it_elsewhere, None),
        (only_reads, None),
        (counts_on, None),
        (only_asks, None),
    ],
)
def test_a_change_of_what_stood_in_for_none_is_reported(does, lost):
    """`state.get(key) or Account()` and change: in the harness, with the record; what is stored or only read is not."""
    steps = Topic("steps")
    value_type = dict if does is walrus else Account
    app = App("lost", inputs=[steps], state=lambda: MapState(str, value_type))

    @app.handler(steps)
    def on_step(record, state, out):
        does(state, record.key)

    harness = Harness(app)
    if lost is None:
        harness.feed(steps, key="ada", value=None)
        return
    with pytest.raises(LostChange) as caught:
        harness.feed(steps, key="ada", value=None)
    assert f"which was changed to {lost}, and the change is lost" in str(caught.value)
    with pytest.raises(LostChange):
        check(app, [record(steps, key="ada", value=None)])
