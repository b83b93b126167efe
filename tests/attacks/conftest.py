"""The attacks on the design use the same stages as the tests of the service."""

from tests.service.conftest import attentive, children, stage
from tests.support.past import past

__all__ = ["attentive", "children", "past", "stage"]
