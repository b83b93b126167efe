"""What HTTP and the command line may ask of a running service: statuses, metrics, operations."""
