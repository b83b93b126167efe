"""Fixtures in memory, in virtual time."""

from tests.service.partition.conftest import bench

__all__ = ["bench"]
