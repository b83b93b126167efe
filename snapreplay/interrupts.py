"""Tells what a signal of the process raised from what a handler raised itself. Pure but for the process's signals."""

from __future__ import annotations

import signal
import threading
import traceback
from functools import partial
from types import CodeType


def of_a_signal(error: BaseException) -> bool:
    """Say whether a signal interrupted the code that was running: Ctrl-C, or a signal handler of the program that
    raised something. Then the process is to end, and the code is not at fault. An `Exception` never counts."""
    if isinstance(error, Exception):
        return False
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    if isinstance(error, KeyboardInterrupt) and signal.default_int_handler in handlers:
        # It is written in C and leaves no frame. Only the main thread runs it.
        return threading.current_thread() is threading.main_thread()
    codes = {_code(each) for each in handlers} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code(handler: object) -> CodeType | None:
    """Return the code of a function, a method or a partial of one; None: it leaves no frame."""
    while isinstance(handler, partial):
        handler = handler.func
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
