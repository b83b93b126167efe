"""The process that audits a partition for a service, beside it."""
