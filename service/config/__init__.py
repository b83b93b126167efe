"""All settings: where they come from, their bounds, and the properties of the Kafka client."""
