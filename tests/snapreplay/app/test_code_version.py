"""Tests that changed code has another version; the same code has the same one, in every process."""

import functools
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from snapreplay.app.code_version import code_version, place_of

BASE = """
LIMIT = 5
def helper(x):
    return x + 1
def nested(x):
    return x ** 2
class Book:
    def place(self, x):
        return x * 2
def handler(record, state, out):
    if record.key in {"a", "b", "c", "d"}:
        state[record.key] = helper(3)
    total = [nested(n) for n in range(4)]
    return Book().place(total)
"""


def version_of(source, name="handler"):
    scope: dict[str, Any] = {"__name__": "user_app"}
    exec(compile(textwrap.dedent(source), "user_app.py", "exec"), scope)  # noqa: S102 - our own text
    return code_version([scope[name]])


@pytest.mark.parametrize(
    "change", ["\n\n\n" + BASE, BASE.replace("total", "other"), BASE + "x = 1\n"]
)
def test_same_code_has_the_same_version(change):
    """Lines, names of local variables and what handlers do not use make no difference."""
    assert version_of(change) == version_of(BASE)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("helper(3)", "helper(4)", "handler"),
        ("helper(3)", "helper(3.0)", "handler"),
        ('"d"', '"e"', "handler"),
        ("x + 1", "x - 1", "handler"),
        ("x * 2", "x * 3", "handler"),
        ("x * 2", "x * 3", "Book"),  # a state's factory may be its class
        ("range(4)", "range(5)", "handler"),
        ("[nested(n)", "[-nested(n)", "handler"),
        ("x ** 2", "x ** 3", "handler"),
        ("out):", "out, more=1):", "handler"),
        ("state[record.key]", "state[record.id]", "handler"),
    ],
)
def test_changed_code_has_another_version(old, new, name):
    """Also in a constant's type, in a helper or class of the same module, in a comprehension."""
    assert old in BASE
    assert version_of(BASE.replace(old, new), name) != version_of(BASE, name)


def test_another_hash_seed_gives_the_same_version():
    """The set constant is iterated in another order there."""
    program = (
        "import sys\nfrom snapreplay.app.code_version import code_version\n"
        "scope = {'__name__': 'user_app'}\n"
        "exec(compile(sys.stdin.read(), 'user_app.py', 'exec'), scope)\n"
        "print(code_version([scope['handler']]))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=BASE,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {version_of(BASE)}


def test_recursive_functions_end():
    """Functions that call each other are each looked at once."""
    source = (
        "def handler(r, s, o):\n    return other(r)\ndef other(r):\n    return handler(r, 1, 2)\n"
    )
    assert version_of(source) != version_of(source.replace("1, 2", "1, 3"))


def wrapped(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


def test_decorated_functions_are_looked_through():
    """The version is of the user's function, not of the wrapper."""

    def one(record, state, out):
        state["a"] = 1

    def two(record, state, out):
        state["a"] = 2

    assert code_version([wrapped(one)]) == code_version([one]) != code_version([wrapped(two)])
    assert code_version([functools.partial(one)]) == code_version([one])


def test_what_a_closure_holds_counts():
    """Handlers made in a function: the rule that they were given, and its parameters."""

    def made(rule, fee):
        def handler(record, state, out):
            state[record.key] = rule(fee)

        return handler

    def double(x):
        return x * 2

    def triple(x):
        return x * 3

    assert code_version([made(double, 1)]) == code_version([made(double, 1)])
    others = {code_version([made(double, 2)]), code_version([made(triple, 1)])}
    assert code_version([made(double, 1)]) not in others
    assert len(others) == 2


def test_a_moved_line_of_a_try_counts():
    """Where an exception is caught is not in the instructions but in a table beside them."""
    one = "def handler(r, s, o):\n    try:\n        s.a()\n        s.b()\n    except KeyError:\n        pass\n"
    other = one.replace("        s.b()\n    except", "    except").replace(
        "pass", "pass\n    s.b()"
    )
    assert version_of(one) != version_of(other)


def test_place_names_function_file_and_line():
    """A message can send its reader there."""
    line = test_place_names_function_file_and_line.__code__.co_firstlineno
    assert place_of(test_place_names_function_file_and_line) == (
        f"test_place_names_function_file_and_line (test_code_version.py:{line})"
    )
    assert place_of(print) == "print"
