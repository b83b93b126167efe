"""Tests of what goes where, and how it looks in a pipe."""

from __future__ import annotations

import json

import pytest

from snapreplay.api.cli.output import console, note, print_error, print_json, table


def test_json_is_one_line(capsys):
    """A stream of documents can be read line by line."""
    print_json({"a": "ä\n", "b": [1]})
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert json.loads(line) == {"a": "ä\n", "b": [1]}


def test_notes_and_errors_leave_standard_output_alone(capsys):
    """Standard output is for the result only."""
    note("starting")
    print_error("port 1 is taken", "choose another")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "starting\nerror: port 1 is taken\n hint: choose another\n"


def test_a_closed_standard_output_is_no_error(monkeypatch):
    """`snapreplay … >&-`: the exit code still says how it went."""
    monkeypatch.setattr("sys.stdout", None)
    console().print(table(("a",), [["x"]]))


def test_piped_output_has_no_colour_and_no_narrow_columns(capsys):
    """A pipe gets plain text, whole values, also when they are longer than 80 columns."""
    console().print(table(("a", "b"), [["x" * 90, None]], right="a"))
    out = capsys.readouterr().out
    assert "x" * 90 in out
    assert "\x1b" not in out


@pytest.mark.parametrize(("no_color", "coloured"), [("1", False), ("", True)])
def test_no_color_is_respected(monkeypatch, no_color, coloured):
    """NO_COLOR wins over a terminal that could."""
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = console()
    with out.capture() as captured:
        out.print("x", style="red")
    assert ("\x1b[31m" in captured.get()) is coloured


def test_messages_are_as_they_are(capsys):
    """A command in a hint can be copied whole, however long it is; brackets are text, not markup; no hint, no line."""
    command = "kafka-configs.sh " + "--add-config retention.ms=-1 " * 20
    print_error("x" * 300, command)
    print_error("no [bold]such[/] host [::1]", "")
    said = f"error: {'x' * 300}\n hint: {command}\nerror: no [bold]such[/] host [::1]\n"
    assert capsys.readouterr().err == said
