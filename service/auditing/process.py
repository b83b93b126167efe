"""The process that audits one partition for a service: `python -m snapreplay.service.auditing.process PARENT`.

The order comes by standard input, because it holds secrets. The answer goes to standard output. It ends with the
service, whatever way the service ends.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from snapreplay.service.runtime.child_process import end_with, go_behind

REPEAT = "repeat"
NICE, OOM_SCORE = 19, 1000


def main() -> None:
    end_with(int(sys.argv[1]), signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # the service decides when it ends
    go_behind(NICE)
    with suppress(OSError):  # elsewhere than on Linux. If memory is short, this process ends, and not the service
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    answering = os.dup(1)
    os.dup2(2, 1)  # what the app prints is no answer
    order = sys.stdin.buffer.read()
    # It takes half a second, and until now nothing would have ended this process.
    auditing = importlib.import_module("snapreplay.service.auditing.work")
    answer = auditing.repeated_by(order) if sys.argv[2:] == [REPEAT] else auditing.answer_to(order)
    with os.fdopen(answering, "wb") as line:
        line.write(answer)


if __name__ == "__main__":
    main()
