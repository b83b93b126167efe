"""A partition's state: what handlers see, what the engine does with it, its fingerprint."""
