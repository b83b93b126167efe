"""Decisions: pure, without clock, sockets, logging or asyncio."""
