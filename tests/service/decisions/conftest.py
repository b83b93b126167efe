"""Decisions are about ledgers with a past."""

from tests.service.partition.conftest import past

__all__ = ["past"]
