"""Numbers of things in messages."""

import re
from pathlib import Path

import pytest

from snapreplay.counted import counted, counted_are, counted_or_no, some

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (counted(0, "offset"), "0 offsets"),
        (counted(1, "entry"), "1 entry"),
        (counted(1_048_576, "entry"), "1,048,576 entries"),
        (counted(2, "key"), "2 keys"),
        (counted(3, "batch"), "3 batches"),
        (counted(2, "index"), "2 indexes"),
        (counted_are(1, "offset"), "1 offset is"),
        (counted_are(2, "offset"), "2 offsets are"),
        (counted_or_no(0, "finding"), "no findings"),
        (counted_or_no(1, "entry"), "1 entry"),
        (counted_or_no(2_000, "finding"), "2,000 findings"),
        (some("abcd"), "a, b, c, d"),
        (some("abcde"), "a, b, c and 2 more"),
    ],
)
def test_a_noun_and_a_verb_follow_their_number(said, expected):
    """Singular for one, plural for none and many, thousands apart; none is a word where it reads better."""
    assert said == expected


def test_no_message_counts_for_itself():
    """A computed number directly before a plural would say "1 offsets" one day."""
    nouns = "offsets|records|partitions|chunks|entries|batches|snapshots|replicas|brokers|jars|changes|findings|outputs"
    bare = re.compile(r"\{(len\([^{}]*\)( or 'no')?|[a-z_.]*count|number|[^{}]* - [^{}]*)(:,)?\} (" + nouns + r")\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("api", "service", "snapshots", "snapreplay/app", "snapreplay/state", "snapreplay/testing")
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if bare.search(line)
    ]
    assert found == []
