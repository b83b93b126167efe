"""Reads a Dockerfile: its stages, and the JSON form of its commands."""

import json
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Instruction(NamedTuple):
    """Such as ("COPY", "api api")."""

    word: str
    rest: str


def stages(text: str) -> list[list[Instruction]]:
    """The instructions of each FROM, itself first; what stands before the first FROM is left out."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found: list[list[Instruction]] = []
    for line in re.sub(r"\\\n", " ", code).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            found.append([])
        if word and found:
            found[-1].append(Instruction(word, " ".join(rest.split())))
    return found


def named(text: str, name: str) -> list[Instruction]:
    """The stage that is called so."""
    (found,) = (each for each in stages(text) if each[0].rest.endswith(f" AS {name}"))
    return found


def last(stage: list[Instruction], word: str) -> str:
    """Return the last one, which counts of several, as in Docker."""
    return [each.rest for each in stage if each.word == word][-1]


def command(stage: list[Instruction], word: str) -> list[str]:
    """ENTRYPOINT, CMD or the command of HEALTHCHECK in its exec form.

    Raises:
        ValueError: it is a text for a shell.
    """
    found: list[str] = json.loads(last(stage, word).rpartition("CMD ")[2])
    return found
