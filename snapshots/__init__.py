"""The writing, reading and auditing of states and batches; needs no Kafka client."""

if not __name__.startswith("snapreplay."):
    # A bare import would make a second copy of every class, and isinstance would be wrong.
    raise ImportError("import snapreplay.snapshots, not snapshots")
