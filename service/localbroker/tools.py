"""Where java is, in the words of the local broker's errors."""

from pathlib import Path

from snapreplay.service.localbroker.errors import ToolsMissing
from snapreplay.snapshots import java


def find_java() -> Path:
    """The java command to use. Costs about 40 ms.

    Raises ToolsMissing: there is none, it does not run, or it is older than Java 17.
    """
    try:
        return java.find_java("The local broker")
    except java.JavaUnavailable as error:
        raise ToolsMissing(error.message, error.hint) from error
