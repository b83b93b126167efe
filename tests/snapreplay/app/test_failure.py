"""Tests that any failure of a record is reported with its id, its cause and its place."""

import asyncio
import inspect
import json as python_json

import pytest

from snapreplay.app.codecs import json
from snapreplay.app.failure import PREFIX, dead_letter, record_error, returned_value
from snapreplay.app.out import DEFAULT_LIMIT_BYTES, headers_upper_bound, size_upper_bound
from snapreplay.app.record import RawRecord
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError, RecordId
from snapreplay.state.map import MapState

payments = Topic("payments", value=json(dict))


def handler(record, state, out):
    raise KeyError("amount")


def raised():
    try:
        handler(None, None, None)
    except KeyError as error:
        return error
    raise AssertionError


def raw(key=b"ada", value=b"{}"):
    return RawRecord("payments", 3, 1042, 0, key, value)


def test_handler_errors_name_record_handler_type_and_message():
    """The user's exception is the cause, its traceback is in the facts."""
    cause = raised()
    error = record_error(raw(), payments, handler, cause)
    assert str(error.record_id) == "payments-3-1042"
    line = handler.__code__.co_firstlineno + 1
    raised_at = f"handler handler (test_failure.py:{line - 1}) raised KeyError: 'amount' at test_failure.py:{line}"
    assert error.message == f"payments-3-1042: {raised_at}"
    assert error.__cause__ is cause
    assert error.facts["exception"] == "KeyError"
    assert 'raise KeyError("amount")' in str(error.facts["traceback"])


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (raw(key=b"\xff\xfe"), ["key cannot be read as utf8", r"b'\xff\xfe'"]),
        (raw(value=b"[1]"), ["value cannot be read as json(dict)", "b'[1]'", "3 bytes"]),
        (raw(value=b"x" * 1000), ["1000 bytes", "…"]),
        (raw(value=None), ["it is null", "nullable(json(dict))"]),
    ],
)
def test_undecodable_bytes_are_shown_with_what_was_expected(record, words):
    """Side, codec and the first bytes stand in the message; a null says how to allow it."""
    error = record_error(record, payments, handler, TypeError("from the loop"))
    for word in ("payments-3-1042", *words):
        assert word in str(error)
    assert len(str(error)) < 400


def test_errors_of_state_and_output_get_the_record_id_once():
    """They are raised where the record is not known."""
    inner = RecordError("output to x has 5 bytes", hint="send less")
    error = record_error(raw(), payments, handler, inner)
    assert error is inner
    assert record_error(raw(), payments, handler, error).message.count("payments-3-1042") == 1
    assert str(error) == "payments-3-1042: output to x has 5 bytes (send less)"
    assert error.args == (error.message,)


def test_the_line_is_the_innermost_of_the_authors_own():
    """Of what the handler called: not of the standard library, and not ours."""

    def reads(record, state, out):
        python_json.loads("{")

    def keeps(record, state, out):
        state[5] = 1

    for wrong, state in ((reads, None), (keeps, MapState(str, int))):
        with pytest.raises((ValueError, RecordError)) as caught:
            wrong(None, state, None)
        line = wrong.__code__.co_firstlineno + 1
        of_record = record_error(raw(), payments, wrong, caught.value)
        assert of_record.message.endswith(f" at test_failure.py:{line}")


def test_an_answer_that_is_a_coroutine_is_closed():
    """A wrapped async handler is refused without a warning about a coroutine never awaited."""

    async def forgotten():
        await asyncio.sleep(0)

    coroutine = forgotten()
    assert "coroutine" in str(returned_value(coroutine))
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


ERROR = RecordError("payments-3-7: no", record_id=RecordId("payments", 3, 7), exception="KeyError")


def letter(record, limit_bytes=DEFAULT_LIMIT_BYTES, error=ERROR):
    return dead_letter("ledger", "v1", record, error, limit_bytes)


def reasons(output):
    return {name.removeprefix(PREFIX): data.decode() for name, data in output.headers if name.startswith(PREFIX)}


def test_the_record_comes_as_it_was_with_the_reasons():
    """Raw bytes and the record's own headers first, then ours."""
    output = letter(RawRecord("payments", 3, 7, 1234, b"\xff", b"\x00", (("h", b"x"),)))
    assert (output.topic, output.key, output.value) == ("ledger-dead-letters", b"\xff", b"\x00")
    assert output.headers[0] == ("h", b"x")
    assert output.same_key
    assert output.timestamp_ms is None
    assert reasons(output) == {
        "topic": "payments",
        "partition": "3",
        "offset": "7",
        "timestamp_ms": "1234",
        "xxh64": "903ecbd49116dcff",
        "exception": "KeyError",
        "message": "payments-3-7: no",
        "app_id": "ledger",
        "app_version": "v1",
    }


@pytest.mark.parametrize(
    ("key_bytes", "value_bytes", "header_bytes", "dropped"),
    [(3, 3, 3, None), (3, 9000, 3, "value"), (9000, 3, 3, "key,value,headers"), (3, 3, 9000, "key,value,headers")],
)
def test_too_large_letters_say_what_was_dropped(key_bytes, value_bytes, header_bytes, dropped):
    """The reasons always arrive, also those that UTF-8 cannot hold: what is too large goes, and a header names it."""
    record = RawRecord("payments", 3, 7, 0, b"k" * key_bytes, b"v" * value_bytes, (("h", b"x" * header_bytes),))
    error = RecordError("\udc80" + "m" * 100_000, record_id=RecordId("payments", 3, 7))
    output = letter(record, 5000, error)
    size = size_upper_bound(output.key, output.value) + headers_upper_bound(output.headers)
    assert size <= 5000
    assert reasons(output).get("dropped") == dropped
    assert reasons(output)["offset"] == "7"
    assert (output.value is None) is (dropped is not None)
