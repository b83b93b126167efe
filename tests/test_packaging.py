"""Tests of what is installed: one package, all of it, importable without the heavy libraries."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINKED = ("api", "service", "snapshots")
NEEDED_BY_PARTS_ONLY = {"aiokafka", "fastapi", "pandas", "pyarrow", "pydantic", "pyspark", "typer"}


def python(*args: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run this interpreter on the tree in `cwd`, and nothing that the environment adds to it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def build(kind: str, tree: Path, into: Path) -> Path:
    """Build a wheel or an sdist from `tree`, offline: hatchling is in the lock file."""
    place = into / kind
    done = python("-m", "hatchling", "build", "-t", kind, "-d", str(place), cwd=tree)
    assert done.returncode == 0, done.stderr
    (built,) = place.iterdir()
    return built


def files_in(wheel: Path) -> dict[str, int]:
    """Name the files of a wheel, its metadata left out, with their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist() if ".dist-info/" not in each.filename}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("built"))


def names_in_tree() -> set[str]:
    """Name what the wheel must hold: the linked folders and the files beside the links."""
    linked = [path for folder in LINKED for path in (ROOT / folder).rglob("*")]
    found = {f"snapreplay/{path.relative_to(ROOT)}" for path in linked if path.is_file()}
    for folder, folders, files in os.walk(ROOT / "snapreplay"):  # which follows no links
        folders[:] = [name for name in folders if name != "__pycache__"]
        found |= {str((Path(folder) / name).relative_to(ROOT)) for name in files}
    return {name for name in found if "__pycache__" not in name}


def test_wheel_equals_tree(wheel: Path) -> None:
    """The wheel holds all files of the tree and puts nothing but snapreplay/ on the path."""
    assert files_in(wheel).keys() == names_in_tree()


def test_wheel_from_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    """Who installs from the source archive, which has no links, gets the same files."""
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    # The first versions of Python 3.11 cannot unpack without a warning of later ones.
    archive = build("sdist", ROOT, tmp_path)
    subprocess.run(["tar", "-xf", archive, "-C", unpacked], check=True)
    (tree,) = unpacked.iterdir()
    assert files_in(build("wheel", tree, tmp_path)) == files_in(wheel)


def test_the_wheel_has_its_licences_and_says_that_it_is_typed(wheel: Path) -> None:
    """Its own, and that of each package in the page, beside it."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    vendored = {Path(name).parts[:5] for name in names if name.startswith("snapreplay/api/static/vendor/")}
    assert {parts[4] for parts in vendored} == {path.name for path in (ROOT / "api/static/vendor").iterdir()}
    assert {"/".join((*parts, "LICENSE.txt")) for parts in vendored} | {"snapreplay/py.typed"} <= {*names}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.parametrize("folder", LINKED)
def test_links_are_relative(folder: str) -> None:
    """The links work in any clone, and from a zip of one."""
    assert (ROOT / "snapreplay" / folder).readlink() == Path("..") / folder


@pytest.mark.parametrize("folder", LINKED)
def test_bare_import_is_refused(folder: str) -> None:
    """A bare import would make a second copy of each class: it names the right import instead."""
    done = python("-c", f"import {folder}")
    assert done.returncode != 0
    assert f"import snapreplay.{folder}, not {folder}" in done.stderr


def test_import_needs_no_heavy_library() -> None:
    """`import snapreplay` works, and is quick, where no Kafka, HTTP or Spark library is."""
    listing = "import sys, snapreplay; print(*{name.partition('.')[0] for name in sys.modules})"
    done = python("-c", listing)
    assert done.returncode == 0, done.stderr
    assert not NEEDED_BY_PARTS_ONLY & set(done.stdout.split())


def test_version_is_said_once() -> None:
    """The version in pyproject.toml is that which the package reports."""
    done = python("-c", "import snapreplay; print(snapreplay.__version__)")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{done.stdout.strip()}"\n' in project
