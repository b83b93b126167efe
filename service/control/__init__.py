"""The questions and commands that HTTP and the command line have for a running service: statuses, metrics,
operations."""
