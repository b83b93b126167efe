"""A Dockerfile without Docker: read it, and perform its steps into a folder of one's own.

Only what ours uses: FROM, ARG, ENV, WORKDIR, COPY of plain names, RUN, and the JSON form of commands.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
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


def of_the_service(text: str) -> list[list[Instruction]]:
    """Those that the image without a target is made of: the first and the last one. The others are Spark's, and install
    Debian packages."""
    first, *_, final = stages(text)
    return [first, final]


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


NOT_HERE = {"PIP_NO_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"}
"""What one image need not keep, the next test run wants; and only what a test imports is compiled, then."""


@dataclass
class Image:
    """The image that the steps leave behind: `folder` stands for /, `env` and `cwd` for what a container starts
    with."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    cwd: Path = Path("/")

    def place(self, path: str) -> Path:
        """Say where a path of the image is."""
        return self.folder / (self.cwd / path).relative_to("/")

    def moved(self, text: str) -> str:
        """`text` with the folders that we fill in their real place. /usr and /bin are the machine's."""
        return re.sub(r"(?<![\w.])/(opt|build|app)\b", rf"{self.folder}/\1", text)


def perform(stage: list[Instruction], image: Image) -> None:
    """The steps of one stage, in order. ENV and WORKDIR begin anew, as in Docker; files stay.

    Raises:
        subprocess.CalledProcessError: a RUN failed; its output is in the test's.
    """
    image.env, image.cwd = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}, Path("/")
    for word, rest in stage:
        match word:
            case "ENV" | "ARG":
                _set(image, rest)
            case "WORKDIR":
                image.cwd = Path(rest)
                image.place(".").mkdir(parents=True, exist_ok=True)
            case "COPY" if not rest.startswith("--from"):
                _copy(image, rest.split())
            case "RUN":
                _run(image, rest)
            case _:
                pass  # says something about the container, changes no file


def _set(image: Image, rest: str) -> None:
    for name, value in re.findall(r"(\S+?)=(\S+)", rest):
        if name not in NOT_HERE:
            image.env[name] = image.moved(value).replace("$PATH", "/usr/bin:/bin")


def _copy(image: Image, names: list[str]) -> None:
    *sources, target = names
    for source in (ROOT / name for name in sources):
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, image.place(target), ignore=ignored, dirs_exist_ok=True)
            continue
        place = image.place(target) / source.name if target.endswith("/") else image.place(target)
        # COPY makes the folders; a name that is a folder already takes the file.
        place = place / source.name if place.is_dir() else place
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)


def _run(image: Image, rest: str) -> None:
    env = {**image.env, "HOME": str(Path.home()), "PIP_NO_COMPILE": "1"}
    subprocess.run(["/bin/sh", "-euc", image.moved(rest)], cwd=image.place("."), env=env, check=True)
