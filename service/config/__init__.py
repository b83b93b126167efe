"""Everything that can be set: where it comes from, its bounds, and what the Kafka client makes of it."""
