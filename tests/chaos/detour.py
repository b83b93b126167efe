"""In a service process: aiokafka's connections to a broker go to the wire that stands for it.

Clients connect to the addresses that brokers advertise, so this is the one place where a wire can be put between them
without changing anything else of the client.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import aiokafka.client
import aiokafka.conn

from tests.chaos.wires import HOST

VARIABLE = "CHAOS_DETOURS"
"""JSON: a broker's "host:port" → port of its wire on the loopback address."""


def install(detours: Mapping[str, int]) -> None:
    """For all connections of this process from here on."""
    connect = aiokafka.conn.create_conn

    async def detour(host: str, port: int, **keywords: Any) -> Any:
        wire = detours.get(f"{host}:{port}")
        if wire is None:
            return await connect(host, port, **keywords)
        return await connect(HOST, wire, **keywords)

    aiokafka.client.create_conn = detour


def install_from_environment() -> None:
    install(json.loads(os.environ.get(VARIABLE, "{}")))
