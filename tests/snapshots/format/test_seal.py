"""The seal itself: what it covers, which keys there are, and what a reader may conclude. What it stops: B19."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.errors import UsageError
from snapreplay.snapshots.format.envelope import decode, encode
from snapreplay.snapshots.format.seal import (
    OFF,
    SealPolicy,
    SealRefused,
    Seals,
    is_sealed,
    key_id_of,
    keys_in,
    sha256_of,
)
from tests.golden.make import FILES, GOLDEN, SEALS
from tests.support.entries import increment, rewrapped

VALUE = encode(increment(3))
KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
A = Seals({"a": KEY}, source="the file")
WHERE = "log-2 offset 7"


def says(seals, value, partition=2):
    """Say why it is refused; "": it is not."""
    try:
        seals.check(value, partition, WHERE)
    except SealRefused as error:
        return error.message if error.hint and error.message.startswith(WHERE) else "unhelpful"
    return ""


def test_a_sealed_record_is_read_as_the_one_that_was_sealed():
    """With and without the key."""
    sealed = A.put_on(VALUE, 2)
    assert decode(sealed) == decode(VALUE)
    assert is_sealed(sealed)
    assert not is_sealed(VALUE)
    assert key_id_of(sealed) == "a"
    assert says(A, sealed) == ""
    assert OFF.put_on(VALUE, 2) == VALUE


@given(st.data())
def test_no_byte_may_differ(data):
    """Whatever is changed, the checksum with it: refused, or no record any more."""
    sealed = A.put_on(VALUE, 2)
    at = data.draw(st.sampled_from([6, *range(12, len(sealed))]))
    other = sealed[:at] + bytes([sealed[at] ^ data.draw(st.integers(1, 255))]) + sealed[at + 1 :]
    assert says(A, rewrapped(other))


def test_the_partition_is_sealed_with_it():
    """A copy in another one is refused."""
    assert "is not that of this record in partition 3" in says(A, A.put_on(VALUE, 2), 3)


@pytest.mark.parametrize(
    ("seals", "value", "expected"),
    [
        (A, VALUE, "has no seal, but seal.policy is required and the file has a key"),
        (Seals({"a": KEY}, SealPolicy.INTRODUCE), VALUE, ""),
        (Seals({"a": KEY}, SealPolicy.WITHDRAW), VALUE, ""),
        (OFF, VALUE, ""),
        (OFF, A.put_on(VALUE, 2), "sealed with key 'a', and this process has no key"),
        (Seals({"b": OTHER}, source="the file"), A.put_on(VALUE, 2), "the file has only b"),
        (Seals({"a": OTHER}), A.put_on(VALUE, 2), "the seal by key 'a' is not that of this record"),
        (Seals({"b": OTHER, "a": KEY}), A.put_on(VALUE, 2), ""),
        (Seals({"a": KEY}, SealPolicy.WITHDRAW), A.put_on(VALUE, 2), ""),
        (Seals({"a": OTHER}, SealPolicy.INTRODUCE), A.put_on(VALUE, 2), "not that of this record"),
    ],
)
def test_each_policy_accepts_and_refuses(seals, value, expected):
    """A wrong seal is refused under every policy."""
    assert expected in says(seals, value)
    assert bool(expected) == bool(says(seals, value))


def test_under_withdraw_nothing_is_sealed():
    """But the order is not checked either."""
    withdrawn = Seals({"a": KEY}, SealPolicy.WITHDRAW)
    assert withdrawn.put_on(VALUE, 2) == VALUE
    assert withdrawn.sha256([b"x"]) == b""
    withdrawn.check_order(VALUE, WHERE, follows_sealed=True)
    with pytest.raises(SealRefused, match="the increment before it has one"):
        Seals({"a": KEY}, SealPolicy.INTRODUCE).check_order(VALUE, WHERE, follows_sealed=True)


def test_the_first_key_writes():
    """The others are for reading."""
    assert key_id_of(Seals({"b": OTHER, "a": KEY}).put_on(VALUE, 2)) == "b"


def test_golden_records_have_the_right_seal():
    """Of the golden key, for partition 2; the other records have none."""
    for name, golden in GOLDEN.items():
        value = (FILES / f"{name}.bin").read_bytes()
        assert is_sealed(value) == golden.sealed
        assert (says(SEALS, value) == "") == (golden.sealed or not name.startswith(("inc", "man")))


@given(st.lists(st.binary(), min_size=1), st.lists(st.binary(), min_size=1))
def test_other_values_have_another_sha256(some, others):
    """Also where they are the same bytes when joined."""
    assert (sha256_of(some) == sha256_of(others)) == (some == others)


HEX = "0f" * 32


def test_a_key_file_is_read():
    """Comments and empty lines are nothing; the order is that of the lines."""
    text = f"# keys of ledger\n\nnew {HEX}\nold {'10' * 40}  # until May\n"
    assert keys_in(text, "file") == {"new": bytes.fromhex(HEX), "old": bytes([16] * 40)}


@pytest.mark.parametrize(
    "line", ["new", HEX, f"new {HEX[2:]}", f"new {HEX}zz", f"new {HEX} more", f"n/w {HEX}", f"old {HEX}"]
)
def test_a_line_that_is_no_key_is_named_without_its_secret(line):
    """With a command that makes one."""
    with pytest.raises(UsageError, match="line 2 of file is no key") as error:
        keys_in(f"old {HEX}\n{line}", "file")
    assert HEX[2:] not in str(error.value)
    assert "openssl rand -hex 32" in error.value.hint


def test_a_key_file_without_a_key_is_refused():
    """An empty one would switch the seal off without a word."""
    with pytest.raises(UsageError, match="file has no key"):
        keys_in("# none\n", "file")


def test_no_secret_is_shown():
    """Neither by accident in a log nor in a traceback."""
    assert KEY.hex() not in repr(A)
    assert repr(KEY) not in repr(A)
