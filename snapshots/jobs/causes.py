"""Why Spark stopped a job, in one line, and what to do about it. Pure."""

from __future__ import annotations


def cause(error: BaseException) -> tuple[str, str]:
    """(what happened, hint). Spark's own message is a stack trace: the first line of Java's last cause is taken."""
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    return str(error if java is None else java.toString()).splitlines()[0], ""
