"""A table of settings that is made by a program tells each problem by its name, as one that was read does."""

import pytest

from snapreplay import HttpSettings, Settings, UsageError


def wrong(table):
    """Return what no type checker would let pass."""
    return table


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: wrong(Settings)(htp={}), r"  htp=\{\}: unknown setting; did you mean http\?"),
        (lambda: HttpSettings(port=-1), "  port=-1: input should be greater than or equal to 0"),
        (lambda: wrong(HttpSettings)(prt=1), "  prt=1: unknown setting; did you mean port?"),
        (
            lambda: wrong(Settings)(http={"port": -1}, batch={"x": 1}),
            r"2 settings are wrong(.|\n)*http.port=-1: (.|\n)*batch.x=1: unknown",
        ),
        (
            lambda: wrong(Settings)(**{"http.port": 1}),
            r"in Python a table is a dict: `http=\{'port': 1\}`; `load_settings` takes dotted names",
        ),
        (lambda: wrong(HttpSettings)(5), r"HttpSettings\(5\): settings are given by their names"),
    ],
)
def test_what_is_wrong_is_told_by_its_name(make, said):
    """All problems at once, in our words, also of a table in a table."""
    with pytest.raises(UsageError, match=said):
        make()


def test_a_table_in_a_table_is_a_table():
    """Given as a dict or as an object; it is frozen and equal."""
    assert Settings(http=HttpSettings(port=0)) == wrong(Settings)(http={"port": 0})
