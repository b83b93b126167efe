"""What a service process of a run loads: the checker's app, behind the wires."""

from tests.chaos import detour
from tests.checker import app as checked

detour.install_from_environment()
app = checked.app
