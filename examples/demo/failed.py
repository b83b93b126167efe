"""The reason why a demo cannot continue."""

from __future__ import annotations


class DemoFailed(Exception):
    """The text is for the person at the terminal: what happened, then the evidence, line by line."""
