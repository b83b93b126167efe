"""One partition's life: recover, process, and what follows when either ends."""
