"""Tests that own topics of other apps are told from inputs by what they hold."""

from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.app.app import App
from snapreplay.app.topic import Topic
from snapreplay.service.ports import Bounds
from snapreplay.service.topics.own_of_others import marked
from snapreplay.service.topics.requirements import left_out, matching
from snapreplay.snapshots.format.envelope import KIND_HEADER
from tests.support import apps
from tests.support.healthy import Topics, topic

LEGAL = (b"{}", ())
OWN = (b"SNRP\x01", ())
DAMAGED = (b"?", ((KIND_HEADER, b"claim"),))
LETTER = (b"{}", (("__snapreplay.errors.app_id", b"a"),))


class Logs:
    """A reader of topics with two partitions: by topic the value and headers of the first record, in partition 1."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.first, self.asked = first, set[str]()

    async def bounds(self, place: Any) -> Bounds:
        self.asked.add(place.topic)
        return Bounds(0, 1 if place.partition and self.first[place.topic] else 0)

    async def read(self, place: Any, start: int, end: int) -> Any:
        value, headers = self.first[place.topic]
        yield [SimpleNamespace(value=value, headers=headers)]

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("name", "first", "why"),
    [
        ("in-snapshots", LEGAL, ""),
        ("in-a-increments", OWN, "it holds the state of app in-a"),
        ("in-a-snapshots", DAMAGED, "it holds the state of app in-a"),
        ("in-a-savepoint-b-snapshots", OWN, "it holds the state of app in-a, as savepoint b"),
        ("in-a-dead-letters", LETTER, "it holds the dead letters of app in-a"),
        ("in-a-dead-letters", LEGAL, ""),
        ("in-a-snapshots", None, "its name ends in -snapshots, and it holds no record yet"),
    ],
)
async def test_the_first_record_tells(name, first, why):
    """Also one that is damaged. Without a record the topic waits."""
    app: App[Any] = App("x", inputs=[Topic.matching("in-.*")], state=apps.Tape)
    facts = {each: topic(each) for each in (name, "in-plain")}
    logs = Logs({name: first})

    async def reader(**_: Any) -> Any:
        return logs

    found: Any = await marked(app, SimpleNamespace(reader=reader), facts)
    assert found[name].not_an_input.startswith(why)
    assert matching(app, found) == sorted({"in-plain"} | (set() if why else {name}))
    assert [why in line for line in left_out(app, found).values()] == ([True] if why else [])
    assert logs.asked == {name}


@pytest.mark.parametrize(
    ("pattern", "name", "is_left_out"),
    [
        ("in-.*", "in-a-internal-b", True),
        ("in-.*", "in-c-internal-b", False),
        ("in-a-internal-.*", "in-a-internal-b", False),
    ],
)
async def test_an_internal_topic_of_an_app_that_exists_is_no_input(pattern, name, is_left_out):
    """A topic with such a name is one if there is no such app, and so is one that is asked for."""
    app: App[Any] = App("x", inputs=[Topic.matching(pattern)], state=apps.Tape)
    cluster: Any = Topics([topic("in-a-increments")])
    found = await marked(app, cluster, {name: topic(name)})
    assert found[name].not_an_input == ("it is an internal topic of app in-a" if is_left_out else "")
