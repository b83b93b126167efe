"""The decisions, pure: without clock, sockets, logging or asyncio."""
