"""What everything about one partition uses: its context, its status, its tasks."""
