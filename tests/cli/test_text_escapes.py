"""Text on a terminal: nothing in stored text may steer it."""

import io
import json
import sys

import pytest

from fleetctl import cli
from fleetctl.output import console

EVIL = "red\x1b[31m bell\x07 csi\x9b0m del\x7f flip\u202e tab\there\nnext\r\x00"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def controls(text: str) -> set[str]:
    """Return the characters of a text that a terminal would obey."""
    return {c for c in text if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160}


def test_one_line_stays_one_line():
    assert console.clean(EVIL) == "red[31m bell csi0m del flip tab here next"


def test_a_block_keeps_its_lines_and_tabs():
    assert console.clean_block(EVIL) == "red[31m bell csi0m del flip tab\there\nnext"


def test_json_keeps_every_character_as_an_escape():
    text = console.to_json({"evil": EVIL})

    assert not controls(text)
    assert json.loads(text) == {"evil": EVIL}


@pytest.mark.parametrize(
    ("stream", "variables", "coloured"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(stream, variables, coloured, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert ("\x1b[" in console.styled("text", "bold", stream)) is coloured


@pytest.mark.parametrize(
    ("count", "text"),
    [(812, "812 B"), (1_400, "1.4 kB"), (1_400_000, "1.4 MB"), (2_000_000_000, "2.0 GB")],
)
def test_sizes_read_as_people_say_them(count, text):
    assert console.size(count) == text


def test_a_terminal_that_lacks_a_character_gets_it_escaped(done, daemon, monkeypatch):
    done("mission", "create", "Größe ✓")
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)

    assert cli.main(["mission", "list"]) == 0
    assert b"Gr\\xf6\\xdfe \\u2713" in narrow.buffer.getvalue()


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (None, "msn-1  silent 20 min  A long title of a mission"),
        (45, "msn-1  silent 20 min  A long title of a miss…"),
        (30, "msn-1  silent 20 min\n    A long title of a mission"),
        (24, "msn-1  silent 20 min\n    A long title of a m…"),
    ],
)
def test_a_title_that_has_no_room_behind_its_ids_stands_below(columns, shown, monkeypatch, capsys):
    monkeypatch.setattr(console, "columns", lambda: columns)

    console.headed("msn-1  silent 20 min  ", "A long title of a mission")

    assert capsys.readouterr().out == f"{shown}\n"
