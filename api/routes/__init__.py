"""The routes, grouped as in the OpenAPI tags.

Handlers are `async` and only call `Control`, which returns at once. Nothing here may block, because
the same loop answers probes.
"""
