"""The document as committed: `python -m tests.support.openapi > docs/openapi.json`."""

import json
import sys
from typing import cast

from snapreplay.api.app import create_app
from snapreplay.api.asking import Asking


def rendered() -> str:
    """Return the document as text; it depends on the code alone, so no service is needed."""
    app = create_app(cast("Asking", None))
    return json.dumps(app.openapi(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(rendered())
