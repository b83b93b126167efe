"""A topic is refused where Kafka would refuse it, and its codecs are codecs."""

import re

import pytest

from snapreplay import App, MapState
from snapreplay.app.codecs import i64, json
from snapreplay.app.topic import TOPIC_NAME_MAX, Topic
from snapreplay.errors import UsageError


@pytest.mark.parametrize("name", ["", ".", "..", "x" * (TOPIC_NAME_MAX + 1), "a b", "a/b", "naïve", "a\n", 5, None])
def test_illegal_names_are_refused_with_the_rule(name):
    """The message repeats the name and says what is allowed."""
    with pytest.raises(UsageError) as caught:
        Topic(name)
    assert repr(name) in caught.value.message
    assert "249" in caught.value.hint


@pytest.mark.parametrize(("given", "remedy"), [(json, "json()"), (str, "utf8"), ("utf8", "utf8"), (json(), None)])
def test_what_is_no_codec_is_refused_with_the_way_out(given, remedy):
    """Forgetting the parentheses of json is named."""
    if remedy is None:
        assert Topic("t", value=given).value is given
        return
    with pytest.raises(UsageError) as caught:
        Topic("t", value=given)
    assert remedy in caught.value.hint


@pytest.mark.parametrize("given", ["consistent_random", "", 2, "MURMUR2"])
def test_a_partitioner_is_one_that_is_known(given):
    """The hint has the names that librdkafka has for them."""
    assert Topic("t", partitioner="crc32").partitioner == "crc32"
    assert Topic("t").partitioner is None
    with pytest.raises(UsageError) as caught:
        Topic("t", partitioner=given)
    assert "crc32 (librdkafka's default consistent_random" in caught.value.hint
    with pytest.raises(UsageError, match="outputs are partitioned by murmur2, not crc32"):
        App("app", inputs=[Topic("in")], outputs=[Topic("t", partitioner="crc32")], state=lambda: MapState(str, int))


def test_a_pattern_matches_whole_names_and_none_of_kafkas_own():
    """What matches can be named, for a producer or a test, with the codecs of the pattern."""
    orders = Topic.matching("orders-.*", key=i64)
    assert [
        each for each in ("orders-", "orders-eu", "my-orders-eu", "orders", "orders-.*") if orders.matches(each)
    ] == ["orders-", "orders-eu"]
    assert not Topic.matching(".*").matches("__consumer_offsets")
    assert (orders.named("orders-eu").name, orders.named("orders-eu").key) == ("orders-eu", i64)
    assert repr(orders) == "Topic.matching('orders-.*', key=i64, value=json(Any))"
    with pytest.raises(UsageError, match="'bills-eu' does not match 'orders-"):
        orders.named("bills-eu")


def test_a_prefix_stands_in_front_of_every_alternative():
    """As the test harness gives one to the topics of an app."""
    some = Topic.matching("(?i)orders|bills")
    some.put_in_front("t.1-")
    assert [each for each in ("t.1-bills", "t.1-ORDERS", "bills", "tx1-bills") if some.matches(each)] == [
        "t.1-bills",
        "t.1-ORDERS",
    ]


def test_what_is_no_expression_is_refused():
    """With the reason and an example that is taken."""
    with pytest.raises(UsageError, match="is not a regular expression") as caught:
        Topic.matching("(")
    assert 'Topic.matching("orders-.*")' in caught.value.hint
    Topic.matching("orders-.*")


@pytest.mark.parametrize(
    ("inputs", "outputs", "says"),
    [
        (["orders-.*"], ["orders-out"], "orders-out is both input and output"),
        ([".*"], [], "app-increments is one of the app's own topics, and '.*' matches it"),
        (["orders-.*", "orders-eu"], [], "orders-eu is an input, and 'orders-.*' matches it"),
        (["bills"], ["orders-.*"], "orders-.* is a pattern, but an output has one name"),
    ],
)
def test_a_pattern_that_matches_too_much_is_refused_at_once(inputs, outputs, says):
    """An output, an own topic, another input: anything the cluster has."""
    topics = [[Topic.matching(each) if "*" in each else Topic(each) for each in side] for side in (inputs, outputs)]
    with pytest.raises(UsageError, match=re.escape(says)):
        App("app", inputs=topics[0], outputs=topics[1], state=lambda: MapState(str, int))
