"""Settings of a broker that no test kills."""

KEEPS_LEADERS = {"broker.session.timeout.ms": "10000"}
"""A local broker has a second, so that it is back soon after a kill. One that pauses on a busy machine is fenced
by itself: each partition is without a leader for a moment, and has another leader epoch."""
