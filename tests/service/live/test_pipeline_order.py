"""What the last step before a commit is. Without a broker."""

from types import SimpleNamespace
from typing import Any

from snapreplay.service.live.pipeline import Live


async def test_the_inputs_are_looked_at_after_the_digest_was_taken():
    """It is long for a large state: what was found before would be old."""
    steps: list[str] = []

    async def digest():
        steps.append("digest")

    async def check(*_):
        steps.append("check")

    live: Any = Live.__new__(Live)
    live._digests = SimpleNamespace(after_batch=digest)
    live._guard = SimpleNamespace(check=check)
    live._committer = SimpleNamespace(chain=None, start=lambda *_: steps.append("start"))
    live._positions = {}
    await live._commit(SimpleNamespace(ranges=(1,), anchors=(), positions={}, failure=None))
    assert steps == ["digest", "check", "start"]
