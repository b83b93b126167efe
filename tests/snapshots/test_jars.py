"""A directory that is filled once, whole or not at all."""

import json
from pathlib import Path

import pytest

from snapreplay.snapshots.jars import (
    JarsUnavailable,
    copy_dependencies,
    fill,
    find_maven,
    is_whole,
    jars_dir,
)

POM = b"<project/>"


def filler(folder: Path) -> None:
    """Two files, as Maven would leave them."""
    (folder / "lib").mkdir()
    (folder / "lib" / "a.jar").write_bytes(b"12345")
    (folder / "b.jar").write_bytes(b"1")


def test_it_is_filled_once(tmp_path) -> None:
    """The second call finds it whole and does nothing."""
    root = tmp_path / "deep" / "jars"
    assert fill(root, POM, filler)
    assert (root / "lib" / "a.jar").read_bytes() == b"12345"
    assert not fill(root, POM, lambda _: pytest.fail("filled again"))


@pytest.mark.parametrize("damage", ["missing", "shorter", "no stamp", "bad stamp", "other pom"])
def test_what_is_not_whole_is_filled_again(tmp_path, damage) -> None:
    """A file gone or cut, a stamp unreadable, another pom.xml."""
    root, pom = tmp_path / "jars", POM
    fill(root, POM, filler)
    match damage:
        case "missing":
            (root / "b.jar").unlink()
        case "shorter":
            (root / "lib" / "a.jar").write_bytes(b"1")
        case "no stamp":
            (root / "stamp.json").unlink()
        case "bad stamp":
            (root / "stamp.json").write_text(json.dumps([1]))
        case _:
            pom = b"<project>new</project>"
    assert not is_whole(root, pom)
    assert fill(root, pom, filler)
    assert is_whole(root, pom)


def test_a_failed_filling_leaves_nothing(tmp_path) -> None:
    """Neither a directory that looks whole nor a half one beside it."""
    root = tmp_path / "jars"

    def failing(folder: Path) -> None:
        filler(folder)
        raise JarsUnavailable("no network")

    with pytest.raises(JarsUnavailable):
        fill(root, POM, failing)
    assert not root.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".jars.lock"]


def test_what_a_killed_filling_left_is_removed(tmp_path) -> None:
    """The next one sweeps up behind it."""
    left = tmp_path / ".jars.new-4711"
    left.mkdir()
    (left / "half.jar").write_bytes(b"1")
    fill(tmp_path / "jars", POM, filler)
    assert not left.exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path) -> None:
    """A file where a directory must be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(JarsUnavailable, match=r"file/jars cannot|in .*file/jars"):
        fill(tmp_path / "file" / "jars", POM, filler)


def test_the_directory_may_be_named(tmp_path, monkeypatch) -> None:
    """By the variable; else it is that of this checkout."""
    monkeypatch.setenv("SOME_JARS", str(tmp_path))
    assert jars_dir("spark", "SOME_JARS") == tmp_path
    monkeypatch.delenv("SOME_JARS")
    assert jars_dir("spark", "SOME_JARS").parts[-2:] == (".jars", "spark")


def test_maven_errors_are_one_line(tmp_path) -> None:
    """A pom.xml that Maven refuses: its own first words, not its whole log."""
    pom = tmp_path / "pom.xml"
    pom.write_text("<project><nonsense/></project>")
    with pytest.raises(JarsUnavailable) as caught:
        copy_dependencies(find_maven("a test"), pom, tmp_path / "lib", "a test")
    assert "could not fetch the jars of a test (exit code 1)" in caught.value.message
    assert "\n" not in caught.value.message


def test_without_mvn_the_package_is_named(monkeypatch) -> None:
    """Nothing runs; the hint is a command."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(JarsUnavailable) as caught:
        find_maven("a test")
    assert caught.value.hint == "apt-get install maven"
