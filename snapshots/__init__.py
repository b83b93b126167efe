"""The program, its state, how both are written and replayed: runs without a Kafka client."""

if not __name__.startswith("snapreplay."):
    # A bare import would make a second copy of every class, and isinstance would lie.
    raise ImportError("import snapreplay.snapshots, not snapshots")
