"""The code of docs/FORMAT.md: docs/FORMAT.md as code. Pure."""
