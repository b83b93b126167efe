"""The gallery fits the source: a mutant that cannot be applied any more would not be missed."""

from collections import Counter

from tests.mutants.mutant import GALLERY, ROOT, Mutant
from tests.mutants.patch import PatchDoesNotFit


def misfit(mutant: Mutant) -> str:
    """Say why this mutant cannot be tried; "" if it can."""
    try:
        for path, text in mutant.patched().items():
            compile(text, path, "exec")
    except (PatchDoesNotFit, SyntaxError) as error:
        return f"{mutant.name}: {error}"
    return ""


def test_every_mutant_changes_the_source_in_one_place_and_is_python() -> None:
    """And what it leaves is Python: a syntax error would be caught by anything."""
    assert list(filter(None, map(misfit, GALLERY))) == []


def test_names_are_used_once_and_tests_exist() -> None:
    """A mutant is tried by its name; a test that was renamed would be an error for pytest, not a catch."""
    assert max(Counter(mutant.name for mutant in GALLERY).values()) == 1
    assert len(GALLERY) >= 25
    for mutant in GALLERY:
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            path, _, function = test.partition("::")
            assert (ROOT / path).exists(), test
            assert function.partition("[")[0] in (ROOT / path).read_text() if function else True
