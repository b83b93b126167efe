"""Pipelines and harnesses make a state for each app, partition and crash."""

from tests.snapreplay.app.conftest import few_shards

__all__ = ["few_shards"]
