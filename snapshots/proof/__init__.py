"""The rules for the two logs of a partition, judged record by record. Pure."""
