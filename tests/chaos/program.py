"""The program of a service process of a run: the checker's app, behind the wires."""

from tests.chaos import wires
from tests.checker import app as checked

wires.install_from_environment()
app = checked.app
