"""Processing: batches, their transactions, snapshots beside them, and what is watched meanwhile."""
