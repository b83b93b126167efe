"""What every decision writes, and in which order: tests/service/decisions/test_accept.py and test_takeover.py hold it
against real logs; here is what does not depend on what was decided."""

import getpass
import os
import socket

from snapreplay.service.decisions.publish import by_whom


def test_a_decision_names_who_made_it(monkeypatch):
    """The user, or his number in a container that has no name for him, at this host."""
    assert by_whom() == f"{getpass.getuser()}@{socket.gethostname()}"
    monkeypatch.setattr(getpass, "getuser", lambda: (_ for _ in ()).throw(KeyError("uid")))
    assert by_whom() == f"{os.getuid()}@{socket.gethostname()}"
