"""The app of the current context, if the process runs several. Log lines and task names carry its id."""

from __future__ import annotations

from contextvars import Context, ContextVar, copy_context

_app_id: ContextVar[str] = ContextVar("snapreplay_app_id", default="")


def context_of_app(app_id: str) -> Context:
    """Make a context for this app; tasks and threads started in it inherit it."""
    context = copy_context()
    context.run(enter_app, app_id)
    return context


def enter_app(app_id: str) -> None:
    """Set the app of the current context."""
    _app_id.set(app_id)


def current_app_id() -> str:
    """Return the app's id; empty if the process has one app, or the code serves all apps."""
    return _app_id.get()


def with_app(text: str) -> str:
    """Put the app's id before a text, if the process has several apps."""
    return f"{app_id}: {text}" if (app_id := _app_id.get()) else text
