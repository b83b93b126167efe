"""What the wrapper passes on as it is: mypy does not see that a method of a port is not among what it translates."""

import inspect

import pytest

from snapreplay.service import ports
from snapreplay.service.runtime.broadcasting import BroadcastCluster, BroadcastReader, _Watch

OF_NO_INPUT = {
    ports.Reader: {
        *("disturbances", "doubt", "is_silent", "wake", "close"),
        "ends_seen",  # of increments
    },
    ports.TopicWatch: set[str](),
    ports.Cluster: {
        *("fence", "last_fence", "appender"),
        *("member_count", "committed_offsets", "offset_committer"),  # of the witness: the app's increments
        *("topic_names", "create_topics", "facts"),
        "delete_records",  # of own topics
    },
}
"""Port → what names no input, or only own topics."""


@pytest.mark.parametrize(
    ("port", "wrapper"),
    [(ports.Reader, BroadcastReader), (ports.Cluster, BroadcastCluster), (ports.TopicWatch, _Watch)],
)
def test_a_new_method_of_a_port_is_translated_or_names_no_input(port: type[object], wrapper: type[object]) -> None:
    """Otherwise Kafka would be asked for a topic "rates/2"."""
    declared = {name: each for name, each in vars(port).items() if not name.startswith("_")}
    translated = {name: each for name, each in vars(wrapper).items() if not name.startswith("_")}
    assert declared.keys() - translated.keys() == OF_NO_INPUT[port]
    for name, method in translated.items():
        assert inspect.signature(method) == inspect.signature(declared[name])
