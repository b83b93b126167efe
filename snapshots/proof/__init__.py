"""What must hold in the two logs of a partition, judged record by record. Pure."""
