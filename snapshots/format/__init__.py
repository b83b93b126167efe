"""How our two topics are written: docs/FORMAT.md as code. Pure."""
