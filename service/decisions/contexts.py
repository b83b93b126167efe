"""One context per partition, for what examines or begins a whole app."""

from __future__ import annotations

import asyncio
from typing import Any

from snapreplay.app.app import App
from snapreplay.service.config.settings import Settings
from snapreplay.service.ports import Cluster
from snapreplay.service.runtime.context import ClusterView, Context, Identity


def contexts_of(
    app: App[Any], settings: Settings, cluster: Cluster, view: ClusterView
) -> list[Context]:
    """Make the context of every partition, in order; never empty."""
    identity = Identity.of_this_process(settings.instance_id)
    return [
        Context(app, settings, cluster, view, identity, number, asyncio.Semaphore(1))
        for number in range(view.partition_count)
    ]
