"""HTTP and the command line: the only layer that uses fastapi and typer."""

if not __name__.startswith("snapreplay."):
    # A bare import would make a second copy of every class, and isinstance would be wrong.
    raise ImportError("import snapreplay.api, not api")
