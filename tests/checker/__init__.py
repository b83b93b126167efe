"""Judges a run from its topics alone: nothing lost, nothing twice, nothing forked.

Shares no code with the service: its own decoder of the two topics (written from docs/FORMAT.md) and confluent-kafka as
client. It judges the app of `tests.checker.app`, whose outputs say which input record they are of.

    verdict = verify(servers, app_id, outcomes=folder, deadline_seconds=60)
    assert verdict.good, str(verdict)

- `tests.checker.app:app` is the app; `SNAPREPLAY_TEST_CHECKED_APP_ID` names it.
- `tests.checker.load.Load(servers, app_id, partitions, seed, rate)` feeds it: `with Load(...):`.
- `tests.checker.outcomes` makes a service process write what its commits were answered; `install(path)` before the
  service starts, or `SNAPREPLAY_TEST_OUTCOMES` set to a file that does not exist yet.
- `python -m tests.checker --bootstrap-servers … --app-id …` is the same on the command line.
"""

from tests.checker.judge import verify
from tests.checker.verdict import Check, Verdict, Violation

__all__ = ["Check", "Verdict", "Violation", "verify"]
