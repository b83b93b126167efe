"""The processing of a partition: batches, their transactions, snapshots beside them, and what is watched meanwhile."""
