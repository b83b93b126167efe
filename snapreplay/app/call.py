"""Calls to the outside: a handler requests one, an async function answers it after the commit, and the answer comes
back as a record. Pure.

A requested call is an entry of the state until its answer is handled, so a crash forgets none, and a replay, which only
repeats what handlers do, never calls. `service.live.caller` runs the functions. An answer of a call that is not pending
(it came twice, or the call was cancelled) has no effect.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import MsgspecError

from snapreplay.app.code_version import place_of
from snapreplay.app.codecs import Codec, msgpack, unencoded
from snapreplay.app.record import Record
from snapreplay.app.timer import Timer
from snapreplay.errors import RecordError, UsageError
from snapreplay.interrupts import of_a_signal
from snapreplay.state.calls import CallStore, PendingCall

if TYPE_CHECKING:
    from snapreplay.app.app import App
    from snapreplay.app.out import Out

K = TypeVar("K")
Q = TypeVar("Q")
R = TypeVar("R")

ERROR_MAX = 2000
"""Characters of an error that an answer tells."""


class CallRefused(Exception):
    """Raised by the function of a call: another attempt would be refused, too. The handler gets the error at once."""


class Call(msgspec.Struct, Generic[K, Q], frozen=True):
    """A requested call, as its function receives it.

    Attributes:
        id: the same at each attempt, after a crash and in every process: send it as the idempotency key.
        key, request: as given to `out.call`.
        attempt: counted from 1 by this process.
    """

    id: str
    key: K
    request: Q
    attempt: int = 1


class Answer(msgspec.Struct, Generic[Q, R], frozen=True):
    """The answer of a call: the value of the record that its handler gets.

    Attributes:
        id: as returned by `out.call`.
        request: as given to `out.call`.
        result: the return value of the function; None after an error.
        error: the reason why there is no result, such as "ValueError: no such street"; empty if there is one.
        attempts: number of attempts of the process that answered.
    """

    id: str
    request: Q
    result: R | None
    error: str
    attempts: int


class Reply(msgspec.Struct, array_like=True, frozen=True):
    """The value of a record in `<app_id>-internal-<name>-results`. `result`: encoded; nil: None, or an error."""

    id: str
    attempts: int
    error: str = ""
    result: bytes | None = None


CallFunction = Callable[[Call[K, Q]], Awaitable[R]]
AnswerHandler = Callable[[Record[K, Answer[Q, R]], Any, "Out"], None]

_LIMITS = {"timeout_ms": (1, 86_400_000), "retries": (0, 1_000_000), "concurrency": (1, 10_000)}


class AsyncCall(Generic[K, Q, R]):
    """A declared call; made by `App.call`.

    Attributes:
        name, timeout_ms, retries, concurrency, ordered: as in `App.call`.
        topic: the internal topic of its answers.
    """

    def __init__(
        self,
        app: App[Any],
        function: CallFunction[K, Q, R],
        *,
        name: str | None,
        key: Codec[Any],
        request: Codec[Any],
        result: Codec[Any],
        timeout_ms: int,
        retries: int | None,
        concurrency: int,
        ordered: bool,
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise UsageError(
                f"{app.app_id}: call {place_of(function) if callable(function) else repr(function)} is not async",
                hint="declare `async def geocode(call)`; what blocks goes into a thread: `await asyncio.to_thread(…)`",
            )
        for what, codec in (("request", request), ("result", result)):
            if not isinstance(codec, Codec):
                raise UsageError(f"{app.app_id}: call {place_of(function)}: {what}={codec!r} is not a codec")
        self.name = function.__name__ if name is None else name
        self.function, self.request, self.result = function, request, result
        self.timeout_ms, self.retries, self.concurrency, self.ordered = timeout_ms, retries, concurrency, ordered
        for option, (least, most) in _LIMITS.items():
            given = getattr(self, option)
            is_unlimited = option == "retries" and given is None
            if not is_unlimited and (type(given) is not int or not least <= given <= most):
                raise UsageError(
                    f"{app.app_id}: call {self.name}: {option}={given!r} is not a number from {least} to {most:,}"
                )
        self.topic = app.topic(f"{self.name}-results", key=key, value=msgpack(Reply))
        self._app = app

    def __repr__(self) -> str:
        return f"<call {self.name} of {self._app.app_id}>"

    def handler(self, function: AnswerHandler[K, Q, R]) -> AnswerHandler[K, Q, R]:
        """Decorate the function that is called with (record, state, out) for each answer, an `Answer` in
        `record.value`.

        Raises:
            UsageError: as of `App.handler`.
        """
        from snapreplay.app.app import check_handler  # noqa: PLC0415 - app.app imports this module

        check_handler(function)

        @wraps(function)
        def handled(record: Record[K, Reply], state: Any, out: Out) -> None:
            reply = record.value
            pending = out.calls.answered(self.name, reply.id)
            if pending is None:
                return None
            request = None if pending.request is None else self.request.decode(pending.request)
            result = None if reply.result is None else self.result.decode(reply.result)
            answer = Answer(reply.id, request, result, reply.error, reply.attempts)
            return function(msgspec.structs.replace(record, value=answer), state, out)  # type: ignore[arg-type] # the answer replaces its value

        self._app.handler(self.topic)(handled)
        return function

    def call_of(self, call_id: str, pending: PendingCall, attempt: int = 1) -> Call[Any, Any]:
        """Return the call as its function receives it. Raises what its codec raises if the codec has changed since."""
        key = None if pending.key is None else self.topic.key.decode(pending.key)
        request = None if pending.request is None else self.request.decode(pending.request)
        return Call(call_id, key, request, attempt)

    def succeeded(self, call_id: str, result: object, attempts: int) -> Reply:
        """Return the reply with this result; with an error, if it cannot be encoded."""
        try:
            if result is None and not self.result.nullable:
                raise TypeError
            encoded = None if result is None else self.result.encode(result)
        except BaseException as error:
            if of_a_signal(error):
                raise
            why, _ = unencoded("result", self.result, result, error)
            return Reply(call_id, attempts, why[:ERROR_MAX])
        return Reply(call_id, attempts, "", encoded)

    def failed(self, call_id: str, error: BaseException, attempts: int) -> Reply:
        return Reply(call_id, attempts, error_text(error))


def error_text(error: BaseException) -> str:
    """Return an error's class and text, safe for a record and a status even if its `__str__` fails or it holds bytes
    that are not UTF-8."""
    try:
        text = str(error)
    except Exception as defect:  # noqa: BLE001 - the author's __str__ may raise anything
        text = f"its text cannot be shown: {type(defect).__name__}"
    shown = f"{type(error).__name__}{': ' if text else ''}{text}"[:ERROR_MAX]
    return shown.encode(errors="backslashreplace").decode()[:ERROR_MAX]


class Calling:
    """The calls of one partition, for `Out`. `begin` names the record or timer whose handler runs."""

    def __init__(self, app: App[Any], partition: int, store: CallStore) -> None:
        self._app_id, self._partition, self._store = app.app_id, partition, store
        self._calls = app.calls
        self._by_topic = {each.topic.name: each for each in app.calls.values()}
        self._source: Record[Any, Any] | Timer[Any] | None = None
        self._count = 0

    def begin(self, source: Record[Any, Any] | Timer[Any]) -> None:
        self._source, self._count = source, 0

    def request(self, declared: AsyncCall[Any, Any, Any], key: object, request: object, at_ms: int) -> str:
        """Add a pending call and return its id. Raises RecordError: it is not declared, or cannot be encoded."""
        if not isinstance(declared, AsyncCall) or self._calls.get(declared.name) is not declared:
            raise _undeclared(declared, self._calls)
        key_bytes = _encoded(declared, "key", declared.topic.key, key)
        request_bytes = _encoded(declared, "request", declared.request, request)
        number = self._store.next_number()
        source = self._source
        if isinstance(source, Timer):  # which may fire twice for one time
            call_id = f"{self._app_id}/{source.name}-{self._partition}/{number}"
        else:
            call_id = f"{self._app_id}/{source.id if source else ''}/{self._count}"
        self._count += 1
        self._store.add(call_id, PendingCall(declared.name, number, at_ms, key_bytes, request_bytes))
        return call_id

    def cancel(self, call_id: str) -> bool:
        return self._store.take(call_id) is not None

    def answered(self, name: str, call_id: str) -> PendingCall | None:
        """Take the call from those pending; None: it is not, or it is one of another name."""
        found = self._store.take(call_id)
        if found is not None and found.name != name:
            self._store.add(call_id, found)
            return None
        return found

    def skipped(self, topic: str, value: bytes | None) -> None:
        """Take the call whose answer is skipped from those pending: otherwise each new owner would call again, and skip
        the answer again. A record that is no answer changes nothing."""
        declared = self._by_topic.get(topic)
        if declared is None or value is None:
            return
        try:
            reply = declared.topic.value.decode(value)
        except (MsgspecError, ValueError):  # the record is of another program
            return
        self.answered(declared.name, reply.id)


class NoCalls(Calling):
    """Of an app without calls: refuses each."""

    def __init__(self) -> None:
        self._calls, self._by_topic = {}, {}

    def cancel(self, call_id: str) -> bool:
        raise _undeclared(call_id, self._calls)


def sourced(app: App[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the handler or timer function; if the app has calls, wrapped to set which handler requests them."""
    if not app.calls:
        return function

    @wraps(function)
    def from_source(source: Any, state: Any, out: Out) -> Any:
        out.calls.begin(source)
        return function(source, state, out)

    return from_source


def _encoded(declared: AsyncCall[Any, Any, Any], side: str, codec: Codec[Any], given: object) -> bytes | None:
    try:
        if given is None and not codec.nullable:
            raise TypeError
        return None if given is None else codec.encode(given)
    except BaseException as error:
        if of_a_signal(error):
            raise
        why, hint = unencoded(side, codec, given, error)
        raise RecordError(f"call {declared.name}: {why}", hint=hint, exception=type(error).__name__) from error


def _undeclared(given: object, known: dict[str, AsyncCall[Any, Any, Any]]) -> RecordError:
    what = given.name if isinstance(given, AsyncCall) else repr(given)
    return RecordError(
        f"call {what}, which is not one of the app's calls",
        hint=f"pass what `@app.call(…)` has made: {', '.join(known) or 'the app has no call'}",
    )
