"""Finds what a reader may copy from the pages: fenced blocks, commands, and code in sentences."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "deploy/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "internals").glob("*.md")),
]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_SEPARATORS = {"|", "&&", ";"}
_REDIRECTIONS = {">", ">>", "<", "<<", "&"}


class Snippet(NamedTuple):
    """A piece of a page: a block, a command or the code in a sentence; `place` is page and line."""

    place: str
    language: str
    text: str


def blocks(*languages: str) -> list[Snippet]:
    """All fenced blocks of these languages, without their indent; of all languages, if none is given."""
    found = []
    for page, text in _pages():
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            found.append(Snippet(f"{page}:{line}", block[2], textwrap.dedent(block[3])))
    return [each for each in found if not languages or each.language in languages]


def inline() -> list[Snippet]:
    """All code in sentences."""
    found = []
    for page, text in _pages():
        prose = _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
        for number, line in enumerate(prose.splitlines(), 1):
            found += [Snippet(f"{page}:{number}", "", code) for code in re.findall(r"`([^`]+)`", line)]
    return found


def commands() -> list[tuple[str, list[str]]]:
    """The commands of all blocks: their place, and their words without what they are piped into."""
    found = []
    for block in blocks("sh", "console"):
        for line in typed(block):
            found += [(block.place, words) for words in words_of(line)]
    return found


def typed(block: Snippet) -> Iterator[str]:
    """Yield what is typed: every line of sh, those behind a prompt of a console; continued lines as one."""
    text = block.text.replace("\\\n", " ")
    prompt = "$ " if block.language == "console" else ""
    yield from (line.removeprefix(prompt) for line in text.splitlines() if line.startswith(prompt) and line.strip())


def words_of(line: str) -> list[list[str]]:
    """Split a line of a shell into its commands, and each of them into words, without variables and redirections."""
    lexer = shlex.shlex(re.sub(r"(^|\s)#\s.*", "", line), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, ""  # shlex takes a # within a word for a comment, too
    found: list[list[str]] = [[]]
    is_target = False
    for word in lexer:
        if word in _SEPARATORS:
            found.append([])
        elif is_target or word in _REDIRECTIONS:
            is_target = word in _REDIRECTIONS
        elif not found[-1] and re.match(r"\w+=", word):
            continue  # a variable for this command
        else:
            found[-1].append(word)
    return [words for words in found if words]


def _pages() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        yield str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
