"""The running process: reading, transactions, recovery, ownership, metrics."""

if not __name__.startswith("snapreplay."):
    # A bare import would make a second copy of every class, and isinstance would lie.
    raise ImportError("import snapreplay.service, not service")
