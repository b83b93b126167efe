"""What all code of one partition uses: its context, its status, its tasks."""
