"""Rules that no linter checks: packages, lint exceptions, documents that match the code, no trace of a machine."""

import ast
import importlib
import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from snapreplay.service.config.table import Table, fields_of, is_table

ROOT = Path(__file__).resolve().parents[1]
ME = Path(__file__).relative_to(ROOT)
PACKAGES = ("api", "service", "snapreplay", "snapshots")

# ------------------------------------------------------------------------- reading the tree


@cache
def tree() -> tuple[Path, ...]:
    """List the files of the repository, without what tools, Maven and make setup put there."""
    found: list[Path] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if belongs(name)]
        found += [Path(folder, name).relative_to(ROOT) for name in files]
    return tuple(sorted(found))


def belongs(folder: str) -> bool:
    """Say whether a folder of this name is written by people."""
    made = {"__pycache__", "build", "dist", "metastore_db", "spark-warehouse", "target"}
    return folder == ".ci" or not (folder.startswith(".") or folder in made)


def files(*suffixes: str) -> list[Path]:
    """List the files with one of these endings."""
    return [path for path in tree() if path.name.endswith(suffixes)]


@cache
def read(path: Path) -> str:
    """Read a file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def parse(path: Path) -> ast.Module:
    """Parse a Python file of the repository."""
    return ast.parse(read(path), filename=str(path))


def sources() -> list[Path]:
    """List the modules that are installed."""
    return [path for path in files(".py") if path.parts[0] in PACKAGES]


def listed(findings: list[str]) -> str:
    """Say all findings at once: pytest would cut the list."""
    return "\n  ".join([f"{len(findings)} to repair", *findings])


# -------------------------------------------------------------------------------- the code


def test_every_folder_is_a_package() -> None:
    """The import contracts do not see a folder without __init__.py."""
    folders = {path.parent for path in sources()}
    bare = [str(folder) for folder in folders if folder / "__init__.py" not in tree()]
    assert not bare, listed(bare)


def test_every_lint_exception_has_its_reason() -> None:
    """Who meets a `noqa` need not guess why: the reason is on the same line."""
    bare = [
        f"{path}:{number}: {line.strip()}"
        for path in files(".py")
        for number, line in enumerate(read(path).splitlines(), 1)
        if re.search(r"# noqa(?!: [A-Z0-9, ]+ - \w)", line) and path != ME
    ]
    assert not bare, listed(bare)


# --------------------------------------------------------------------------- the documents


def prose(text: str) -> str:
    """Leave the fenced code out of a Markdown text."""
    return re.sub(r"^( *)(```|~~~).*?^\1\2", "", text, flags=re.MULTILINE | re.DOTALL)


def named_paths(text: str) -> Iterator[str]:
    """Find link targets, and words in backticks that are plainly a path of this repository."""
    for target in re.findall(r"\]\(<?([^)>\s]+)>?[^)]*\)", text):
        if not re.match(r"[a-z][a-z0-9+.-]*:", target):
            yield target
    tops = {path.parts[0] for path in tree() if len(path.parts) > 1}
    for word in re.findall(r"`([^`\s]+)`", text):
        if word.split("/")[0] in tops and "/" in word and not re.search(r"[*<>{}$…=]", word):
            yield word


def heading_ids(path: Path) -> set[str]:
    """Name the headings of a Markdown file as links name them."""
    titles = re.findall(r"^#+ +(.+?) *$", prose(read(path)), flags=re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in kept}


def is_dead(document: Path, target: str) -> bool:
    """Say whether a path named in a document leads nowhere, from there or from the root."""
    name, _, heading = target.partition("#")
    if not name:
        return heading not in heading_ids(document)
    for base in (ROOT / document.parent, ROOT):
        place = (base / name.removeprefix("/")).resolve()
        if place.exists():
            known = place.suffix != ".md" or not heading
            return not known and heading not in heading_ids(place)
    return True


def test_documents_name_what_exists() -> None:
    """No document sends its reader to a file or heading that is not there."""
    dead = [
        f"{document}: {target}"
        for document in files(".md")
        for target in named_paths(prose(read(document)))
        if is_dead(document, target)
    ]
    assert not dead, listed(dead)


def setting_names(table: type[Table], prefix: str = "") -> Iterator[str]:
    """Name all settings as they stand in the TOML file, tables by dots."""
    for name, field in fields_of(table).items():
        if is_table(field.type):
            yield from setting_names(field.type, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_every_setting_is_documented() -> None:
    """docs/settings.md explains each setting, and none that is gone."""
    module = importlib.import_module("snapreplay.service.config.settings")
    names = set(setting_names(module.Settings))
    text = read(Path("docs/settings.md"))
    explained = set(re.findall(r"^\| `([a-z0-9_.]+)`", text, flags=re.MULTILINE))
    assert names, "no settings found"
    unexplained = sorted(names - set(re.findall(r"`([a-z0-9_.]+)`", text)))
    assert not unexplained, listed(unexplained)
    gone = sorted(name for name in explained - names if not name.startswith("kafka."))
    assert not gone, listed(gone)


def metric_names(text: str) -> set[str]:
    """Find the names of metrics, without what the client library appends to them."""
    found = re.findall(r"\bsnapreplay_[a-z0-9_]+[a-z0-9]\b", text)
    return {re.sub(r"_(total|bucket|count|sum|info|created)$", "", name) for name in found}


def test_every_metric_is_documented() -> None:
    """docs/runbook.md explains each metric, and none that is gone."""
    trees = [parse(Path(f"service/control/{name}.py")) for name in ("metrics", "counters")]
    constants = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    names = metric_names(" ".join(value for value in constants if isinstance(value, str)))
    assert names, "no metrics found"
    differing = sorted(names ^ metric_names(read(Path("docs/runbook.md")).partition("## Metrics")[2]))
    assert not differing, listed(differing)


def test_every_dependency_is_justified() -> None:
    """docs/internals/dependencies.md says what each direct dependency is for, and names none that is gone."""
    project = tomllib.loads(read(Path("pyproject.toml")))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[<>=!~\[ ]", wanted)[0] for group in groups for wanted in group}
    names |= tomllib.loads(read(Path("engine/Cargo.toml")))["dependencies"].keys()
    rows = re.findall(r"^\| `([a-z0-9-]+)`", read(Path("docs/internals/dependencies.md")), flags=re.MULTILINE)
    differing = sorted(names ^ set(rows))
    assert not differing, listed(differing)


# ------------------------------------------------------------------ nothing about a machine

URL = re.compile(r"https?://(?!maven\.apache\.org/|www\.w3\.org/|github\.com/rust-lang/crates\.io-index)")
# The names that the formats of Maven and Cargo demand are the exceptions above; tests and documents may
# link wherever they like.
WITHOUT_ADDRESSES = (".lock", ".toml", ".xml", ".in", "Makefile", ".ci/run")


def test_no_address_decides_where_packages_come_from() -> None:
    """Which registry is asked is configured on the machine, never in the repository."""
    silent = [path for path in tree() if str(path).endswith(WITHOUT_ADDRESSES)]
    found = [str(path) for path in silent if URL.search(read(path))]
    assert silent
    assert not found, listed(found)


def test_no_path_of_a_machine() -> None:
    """No file knows where somebody keeps a checkout or has a home directory."""
    places = [str(ROOT), r"/[r]oot/", r"/Users/\w", r"/home/(?!nonroot|app|snapreplay)\w"]
    somewhere = re.compile("|".join(place.replace(".", r"\.") for place in places))
    texts = files(".py", ".md", ".toml", ".yaml", ".yml", ".json", ".xml", ".lock", "file", "run")
    found = [str(path) for path in texts if path != ME and somewhere.search(read(path))]
    assert not found, listed(found)
