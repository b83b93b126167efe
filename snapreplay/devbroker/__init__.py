"""A real Kafka broker from jars on the loopback address: for demo, dev, tests and benchmarks."""
