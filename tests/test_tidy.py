"""Habits that no linter checks: sizes, a test for each file, documents that tell the truth."""

import ast
import importlib
import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from snapreplay.service.config.table import Table, fields_of, is_table

ROOT = Path(__file__).resolve().parents[1]
ME = Path(__file__).relative_to(ROOT)
PACKAGES = ("api", "service", "snapreplay", "snapshots")
MAX_FUNCTION_LINES = 50
MAX_FILE_LINES = 400
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
Kind = Literal["function", "property", "thing", "helper"]

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


class Definition(NamedTuple):
    """The facts that are looked at of a module, class or function; the lines of a function without its docstring."""

    path: Path
    name: str
    kind: Kind
    lines: int
    docstring: str


@cache
def definitions() -> tuple[Definition, ...]:
    """List those of all files, inner ones too. Parsing takes the time of these tests: once is enough."""
    return tuple(
        Definition(
            path,
            getattr(node, "name", "the module"),
            kind_of(node),
            length(node) if isinstance(node, FUNCTIONS) else 0,
            ast.get_docstring(node) or "",
        )
        for path in files(".py")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Module | ast.ClassDef | FUNCTIONS)
    )


def kind_of(node: ast.AST) -> Kind:
    """Say what a definition is; a property reads like a thing, not like a function."""
    if not isinstance(node, FUNCTIONS):
        return "thing"
    decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
    return "property" if decorators & {"property", "cached_property"} else "function"


def functions() -> list[Definition]:
    """List the functions of all files, properties included."""
    return [each for each in definitions() if each.kind != "thing"]


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function, its docstring left out."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


# -------------------------------------------------------------------------------- the code


def test_functions_are_short() -> None:
    """A function fits on a screen."""
    long = [
        f"{function.path}: {function.name} has {function.lines} lines"
        for function in functions()
        if function.lines > MAX_FUNCTION_LINES
    ]
    assert not long, listed(long)


def test_files_are_short() -> None:
    """A file is about one thing."""
    counts = {path: len(read(path).splitlines()) for path in files(".py")}
    long = [f"{path}: {count} lines" for path, count in counts.items() if count > MAX_FILE_LINES]
    assert not long, listed(long)


def test_every_folder_is_a_package() -> None:
    """The import contracts do not see a folder without __init__.py."""
    folders = {path.parent for path in sources()}
    bare = [str(folder) for folder in folders if folder / "__init__.py" not in tree()]
    assert not bare, listed(bare)


def imported(path: Path) -> set[str]:
    """Name what a file imports of ours, "service.core.phase", and the names that it takes from there."""
    found: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found | {name.removeprefix("snapreplay.") for name in found}


def test_every_source_has_its_test() -> None:
    """Who changes service/x.py finds its test at tests/service/test_x.py; or a test imports it, or a module that is
    tested so."""
    modules = {str(path.with_suffix("")).replace("/", "."): path for path in sources()}
    by_tests = set().union(*(imported(path) for path in files(".py") if path.parts[0] == "tests"))
    tested = [path for name, path in modules.items() if name in by_tests or has_test(path)]
    by_tested = set().union(*map(imported, tested))
    missing = [
        str(path)
        for name, path in modules.items()
        if name not in by_tested
        and path not in tested
        and not path.stem.startswith("__")
        and "__main__" not in read(path)  # those are started by name
    ]
    assert not missing, listed(missing)


def has_test(source: Path) -> bool:
    """Say whether there is a test file of its name at its place."""
    return Path("tests") / source.parent / f"test_{source.stem.lstrip('_')}.py" in tree()


def test_every_test_says_what_it_shows() -> None:
    """The docstring of a test is the sentence that becomes false when it fails."""
    silent = [
        f"{function.path}: {function.name}"
        for function in functions()
        if function.path.parts[0] == "tests" and function.path.name.startswith("test_")
        if function.name.startswith("test_") and not re.search(r"[.?!]\)?(\n|$)", function.docstring)
    ]
    assert not silent, listed(silent)


# What begins a clause or a fragment, never a sentence with its subject first.
OPENERS = frozenset(
    """
    of in for with by from before after at without until as to between on like around per up out since while during
    inside outside under over above below behind beside beyond within upon across against among instead into through
    toward what whether how where why when which who whose whom whoever whatever whichever if unless because though
    although and or but nor so see not also only then thus once again too otherwise merely just still already yet
    """.split()  # noqa: SIM905 - a line for each word would be two screens
)
# What begins the name of a thing, or a statement about one: a function is a verb.
NO_VERBS = frozenset(
    """
    the a an this that these those it its he they them their we us our you i one ones some any all each every both
    either neither no none nobody nothing somebody something everybody everything another other such same several many
    most more there here is are was has does can may must will would true false first last newest oldest
    """.split()  # noqa: SIM905 - a line for each word would be two screens
)


def is_fragment(kind: Kind, docstring: str) -> bool:
    """Say whether a docstring begins with what is no whole sentence; ruff's D401 knows more forms of verbs."""
    first = docstring.split(maxsplit=1)[0]
    word = first.rstrip(".,:;").lower()
    if word == "whether":
        return kind not in ("property", "helper")
    if kind == "helper":
        return word in OPENERS
    if word in OPENERS or first[-1] == ":" or (word.endswith("ed") and not word.endswith("eed")):
        return True
    if kind != "function":
        return first[-1] == "." or re.match("[A-Z]", first) is None
    is_plural = word.endswith("s") and not word.endswith("ss")
    return is_plural or word in NO_VERBS or re.match(r"[A-Z][a-z]+\b", first) is None


def test_docstrings_begin_with_a_whole_sentence() -> None:
    """What a thing is or does can be read without the code below; CONTRIBUTING.md has the rule."""
    fragments = [
        f"{each.path}: {each.name}: {each.docstring.splitlines()[0]}"
        for each in definitions()
        if each.docstring and not each.name.startswith("test_")
        if is_fragment("helper" if each.path.parts[0] == "tests" else each.kind, each.docstring)
    ]
    assert not fragments, listed(fragments)


@pytest.mark.parametrize(
    ("kind", "docstring", "fragment"),
    [
        ("thing", "Of its snapshots.", True),
        ("thing", "What a handler sends.", True),
        ("thing", "Raised by a route.", True),
        ("thing", "`prefix` is empty.", True),
        ("thing", "A scheduler of snapshots.", False),
        ("thing", "Asks one service.", False),
        ("function", "See `Reader.poll`.", True),
        ("function", "The newest snapshot.", True),
        ("function", "Returns the newest snapshot.", True),
        ("function", "Whether it is there.", True),
        ("function", "`count` records of one input.", True),
        ("function", "Feed one record.", False),
        ("helper", "Until it is there.", True),
        ("helper", "`reader(topic)` is a new one.", False),
        ("property", "Whether it is there.", False),
        ("property", "As Kafka has it.", True),
    ],
)
def test_a_fragment_is_known(kind: Kind, docstring: str, fragment: bool) -> None:
    """The rule for docstrings finds what it is there for, and nothing else."""
    assert is_fragment(kind, docstring) is fragment


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
    """docs/metrics.md explains each metric, and none that is gone."""
    trees = [parse(Path(f"service/control/{name}.py")) for name in ("metrics", "counters", "partition_gauges")]
    constants = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    names = metric_names(" ".join(value for value in constants if isinstance(value, str)))
    assert names, "no metrics found"
    differing = sorted(names ^ metric_names(read(Path("docs/metrics.md"))))
    assert not differing, listed(differing)


def test_every_dependency_is_justified() -> None:
    """docs/dependencies.md says what each direct dependency is for, and names none that is gone."""
    project = tomllib.loads(read(Path("pyproject.toml")))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[<>=!~\[ ]", wanted)[0] for group in groups for wanted in group}
    rows = re.findall(r"^\| `([a-z0-9-]+)`", read(Path("docs/dependencies.md")), flags=re.MULTILINE)
    differing = sorted(names ^ set(rows))
    assert not differing, listed(differing)


# ------------------------------------------------------------------ nothing about a machine

URL = re.compile(r"https?://(?!maven\.apache\.org/|www\.w3\.org/)")
# The names that Maven's own XML format demands are the exception above; tests and documents may
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
