"""Tests that whatever goes wrong with a record is told with its id, its cause and its place."""

import asyncio
import inspect
import json as python_json

import pytest

from snapreplay.app.codecs import json, nullable, utf8
from snapreplay.app.failure import answered, record_error
from snapreplay.app.record import RawRecord
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError
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


def test_null_is_no_fault_where_it_is_allowed():
    """Then the handler's own error is told."""
    topic = Topic("payments", key=nullable(utf8), value=nullable(json(dict)))
    error = record_error(raw(key=None, value=None), topic, handler, raised())
    assert "KeyError" in error.message


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
    assert "coroutine" in str(answered(coroutine))
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
