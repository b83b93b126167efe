"""One partition's life: recover, then process, then hand over."""
