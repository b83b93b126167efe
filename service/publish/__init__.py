"""A state that gets into the log: the claim, the full snapshot, the increment that points to it."""
