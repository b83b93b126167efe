"""Writes a state to the log: the claim, the full snapshot, the increment that points to it."""
