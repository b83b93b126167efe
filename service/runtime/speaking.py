"""The app that the code of a context works for, where several run in one process: log lines and tasks are named by
it."""

from __future__ import annotations

from contextvars import Context, ContextVar, copy_context

_app_id: ContextVar[str] = ContextVar("snapreplay_app_id", default="")


def context_of_app(app_id: str) -> Context:
    """Make a context whose tasks and threads, and those that they begin, speak of this app."""
    context = copy_context()
    context.run(speak_of, app_id)
    return context


def speak_of(app_id: str) -> None:
    """Speak of this app in the present context from now on."""
    _app_id.set(app_id)


def app_spoken_of() -> str:
    """Return the app's id; empty: the process has one app, or it is the matter of all."""
    return _app_id.get()


def of_app(text: str) -> str:
    """Put the app before a text, where the process has several."""
    return f"{app_id}: {text}" if (app_id := _app_id.get()) else text
