"""The common tools of all code of one partition: its context, its status, its tasks."""
