"""How states and batches are written, read and audited; needs no Kafka client."""

if not __name__.startswith("snapreplay."):
    # A bare import would make a second copy of every class, and isinstance would be wrong.
    raise ImportError("import snapreplay.snapshots, not snapshots")
