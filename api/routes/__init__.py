"""The routes, grouped as in the OpenAPI tags.

Handlers are `async` and only call `Control`, which returns at once: nothing here may block, because
probes are answered by the same loop.
"""
