"""Turns the pages of the repository into a site: their order, those outside of docs/, and the files that they link to.

A page of docs/ lies at the root of the site, any other page at its path in the repository. A linked file that is not a
page becomes one.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
INDEX = "docs/README.md"
_CODE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_CELL = re.compile(r"<(table|tr|td)>")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".sh": "sh", ".service": "ini"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Order the pages as docs/README.md does. What it does not list under a heading is left out of the navigation."""
    config.nav = [_on_site(INDEX), *_groups()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/, and the files that any page links to."""
    pages = [*_pages(_text(INDEX)), *_decisions()]
    linked = {target for page in pages for target in _targets(page, _text(page)) if (ROOT / target).is_file()}
    for path in sorted(linked.union(pages)):
        if path.startswith("docs/") or path == "README.md":  # the page of that place is docs/README.md
            continue
        files.append(File.generated(config, _on_site(path), content=_text(path) if path in pages else _listing(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs passes it
    """Let links lead to pages of the site, under their titles. A link to a folder becomes plain text. Cells of HTML
    tables hold Markdown."""
    here = page.file.src_uri
    path = here if page.file.generated_by else f"docs/{here}"
    is_listing = not (ROOT / path).is_file()
    page.meta["search"] = {"boost": 0.2 if here.startswith("adr/") else 1, "exclude": is_listing}

    def on_site(found: re.Match[str]) -> str:
        text, link, anchor = found.groups(default="")
        target = _on_site(_target(path, link))
        if files.get_file_from_path(target) is None:
            return text
        if text.endswith(".md"):
            text = _title(_target(path, link))
        return f"[{text}]({posixpath.relpath(target, posixpath.dirname(here) or '.')}{anchor})"

    parts = _CODE.split(markdown)
    parts[::2] = (_CELL.sub(r'<\1 markdown="1">', _LINK.sub(on_site, prose)) for prose in parts[::2])
    return "".join(parts)


def _groups() -> Iterator[dict[str, list[str]]]:
    """Yield the groups of pages in docs/README.md."""
    for group in re.split(r"^## ", _text(INDEX), flags=re.MULTILINE)[1:]:
        title, body = group.split("\n", 1)
        yield {title: [_on_site(page) for page in _pages(body)]}


def _pages(text: str) -> list[str]:
    return [each for each in _targets(INDEX, text) if each.endswith(".md")]


def _decisions() -> list[str]:
    return sorted(str(each.relative_to(ROOT)) for each in (ROOT / "docs" / "internals" / "adr").glob("*.md"))


def _targets(path: str, markdown: str) -> list[str]:
    """Return what the links of a page lead to, as paths of the repository."""
    return [_target(path, found[2]) for prose in _CODE.split(markdown)[::2] for found in _LINK.finditer(prose)]


def _target(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _on_site(path: str) -> str:
    is_page = path.endswith(".md") or path.startswith("docs/")
    return path.removeprefix("docs/") if is_page else f"{path}.md"


def _title(path: str) -> str:
    return _text(path).split("\n", 1)[0].removeprefix("# ")


def _listing(path: str) -> str:
    return f"# {path}\n\n```{_LANGUAGES.get(Path(path).suffix, '')}\n{_text(path)}```\n"


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")
