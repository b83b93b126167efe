"""The way from the fence to a proven state: reading the log, loading, advancing, checking the inputs."""
