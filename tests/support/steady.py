"""Settings of a broker that nobody kills."""

KEEPS_LEADERS = {"broker.session.timeout.ms": "10000"}
"""A second by ours, so that a broker is back soon after a kill. One that stands still on a busy machine would be fenced
by itself: each partition would be without a leader for a moment, and have another leader epoch."""
