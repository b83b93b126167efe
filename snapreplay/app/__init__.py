"""The app: what it reads, how a record is applied, what it sends. The same live, in replay and in tests."""
