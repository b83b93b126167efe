"""The text of events, written and read."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.api import events
from snapreplay.api.events import Ages, Parser, ServerEvent, TooLarge
from tests.support.fake_control import FAILED, LIVE, FakeControl

DOCUMENT = FakeControl([LIVE, FAILED]).document()
STREAM = (
    events.status(events.members(DOCUMENT))
    + events.ages(Ages(0.25, 1.5))
    + b": hello\n\nevent: of a newer version\ndata: {}\n\n"
    + events.BYE
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_stream_is_read_as_it_was_written_in_any_pieces(cuts):
    """Comments that say nothing to us are left out."""
    ends = [0, *sorted(cuts), len(STREAM)]
    parser = Parser(len(STREAM))
    pieces = [STREAM[a:b] for a, b in pairwise(ends)]
    read = [each for piece in pieces for each in parser.feed(piece)]
    assert read[1:] == [Ages(0.25, 1.5), ServerEvent("of a newer version", b"{}"), ServerEvent("bye", b"{}")]
    status = read[0]
    assert isinstance(status, ServerEvent)
    assert msgspec.structs.replace(events.changed(None, status.data), made_at=DOCUMENT.made_at) == DOCUMENT


def test_an_event_without_an_end_is_refused():
    """Its sender gets no more memory than one event may have."""
    parser = Parser(1000)
    for _ in range(100):
        assert not list(parser.feed(b"x" * 10))
    with pytest.raises(TooLarge, match="more than 1,000 bytes"):
        list(parser.feed(b"x"))


def test_a_change_replaces_members_and_leaves_the_others():
    """The peers of a process that says nothing of them are those from before."""
    changed = events.changed(DOCUMENT, b'{"partitions":[]}')
    assert changed == msgspec.structs.replace(DOCUMENT, partitions=())


def test_a_status_of_another_version_is_read():
    """It has members and fields that we do not know, and lacks some that we know."""
    said = json.loads(msgspec.json.encode(DOCUMENT))
    facts = {name: said["facts"][name] for name in said["facts"] if name != "waiting_for"} | {"new": 1}
    live = {name: said["partitions"][0][name] for name in ("partition", "phase", "owner_epoch")} | {"new": [2]}
    data = json.dumps({"facts": facts, "partitions": [live], "newer": {}}).encode()
    assert events.whose(data) == events.Whose(DOCUMENT.facts.app_id, DOCUMENT.facts.process_id)
    read = events.changed(None, data)
    assert (read.facts, read.partitions[0].owner_epoch, read.standbys) == (DOCUMENT.facts, 130, ())


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"null", b'{"facts":{}}', b'{"facts":{"app_id":1,"process_id":"p"}}', b"\xff"]
)
def test_what_names_no_owner_has_none(data):
    """Any server at a wrong address."""
    assert events.whose(data) is None
