"""A topic is refused where Kafka would refuse it, and its codecs are codecs."""

import pytest

from snapreplay.app.codecs import i64, json, utf8
from snapreplay.app.topic import TOPIC_NAME_MAX, Topic
from snapreplay.errors import UsageError


def test_defaults_are_text_keys_and_json_values():
    """The short form is the common case."""
    topic = Topic("payments")
    assert topic.key is utf8
    assert topic.value.decode(b'{"a":[1,null]}') == {"a": [1, None]}
    assert repr(topic) == "Topic('payments', key=utf8, value=json(Any))"


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * TOPIC_NAME_MAX, "..."])
def test_legal_names_are_taken(name):
    """Kafka's own rules, no stricter."""
    assert Topic(name, key=i64).name == name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * (TOPIC_NAME_MAX + 1), "a b", "a/b", "naïve", "a\n", 5, None])
def test_illegal_names_are_refused_with_the_rule(name):
    """The message repeats the name and says what is allowed."""
    with pytest.raises(UsageError) as caught:
        Topic(name)
    assert repr(name) in caught.value.message
    assert "249" in caught.value.hint


@pytest.mark.parametrize(("given", "remedy"), [(json, "json()"), (str, "utf8"), ("utf8", "utf8"), (json(), None)])
def test_what_is_no_codec_is_refused_with_the_way_out(given, remedy):
    """Forgetting the parentheses of json is told by name."""
    if remedy is None:
        assert Topic("t", value=given).value is given
        return
    with pytest.raises(UsageError) as caught:
        Topic("t", value=given)
    assert remedy in caught.value.hint
