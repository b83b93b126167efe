"""Tests of the hashes by which producers choose the partition of a key."""

import aiokafka.partitioner
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.service.core.partitioners import HASHES, misplaced, murmur_positive


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_java(key, value):
    """The values of Kafka's own test of it."""
    assert murmur_positive(key) == value & 0x7FFFFFFF


@given(st.binary(max_size=40))
def test_murmur2_is_that_of_the_client(key):
    """For keys of every length."""
    assert murmur_positive(key) == int(aiokafka.partitioner.murmur2(key)) & 0x7FFFFFFF


@pytest.mark.parametrize("name", HASHES)
def test_a_key_is_misplaced_in_every_partition_but_one(name):
    """A null or an empty key is so in none."""
    at = HASHES[name].partition(b"ada", 6)
    assert [number for number in range(6) if not misplaced(b"ada", number, 6, name)] == [at]
    assert not any(misplaced(key, number, 6, name) for key in (None, b"") for number in range(6))
