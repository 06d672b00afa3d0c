"""Tables fit the terminal, whatever stands in them, and lose no id."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcswidth

from fleetctl.commands import (
    agent,
    checkpoint,
    config,
    lock,
    mail,
    mission,
    snapshot,
    sortie,
    status,
)
from fleetctl.output.tables import GAP, Column, fit, shortened
from fleetctl.output.text import cut, cut_middle, padded, width
from fleetctl.output.views import mission as mission_page

TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs", "Cc", "Cf"]),
        st.sampled_from("漢字한글👩🏽‍🚀é❤️🇩🇪e\u0301"),
    ),
    max_size=60,
)
IDS = st.from_regex(r"[a-z]{3}-[0-9a-f]{8}", fullmatch=True)
COLUMNS = (
    Column("ID"),
    Column("STATUS", matters=5),
    Column("FILE", matters=6, cut="middle", least=16),
    Column("TITLE", cut="end"),
    Column("WHEN", matters=1),
)
STATUS = st.sampled_from(["pending", "in_progress"])
ROWS = st.lists(
    st.tuples(IDS, STATUS, TEXT, TEXT, st.just("yesterday 14:02")), min_size=1, max_size=5
)


def lines(rows, room):
    """Return a table as it would be printed, and which columns are left."""
    left, widths = fit(COLUMNS, rows, room)
    gap = " " * GAP
    return left, [
        gap.join(shortened(COLUMNS[n], row[n], wide) for n, wide in zip(left, widths, strict=True))
        for row in rows
    ]


@given(ROWS, st.integers(min_value=24, max_value=200))
@settings(deadline=None)
def test_no_line_is_wider_than_the_terminal_and_no_id_is_lost(rows, room):
    left, printed = lines(rows, room)

    assert {0, 3} <= set(left)
    for row, line in zip(rows, printed, strict=True):
        assert line.startswith(row[0])
        assert width(line) <= room
        assert wcswidth(line) <= room


@given(ROWS)
@settings(deadline=None)
def test_where_there_is_room_nothing_is_cut(rows):
    left, printed = lines(rows, None)

    assert left == [0, 1, 2, 3, 4]
    for row, line in zip(rows, printed, strict=True):
        assert all(cell in line for cell in row)


@given(TEXT, st.integers(min_value=0, max_value=50))
@settings(deadline=None)
def test_what_is_cut_fits_and_what_fits_is_not_cut(text, columns):
    for shorten in (cut, cut_middle):
        short = shorten(text, columns)
        assert width(short) <= columns
        assert (short == text) is (width(text) <= columns)
    assert width(padded(cut(text, columns), columns)) == columns


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("👍", 2), ("a\u200db", 2), ("🇩🇪", 4), ("한", 2)],
)
def test_characters_are_as_wide_as_terminals_show_them(text, columns):
    assert width(text) == columns
    assert wcswidth(text) <= columns


def test_the_least_important_goes_first_and_paths_keep_their_end():
    rows = [("msn-1a2b3c4d", "in_progress", "/home/me/project/src/auth/token.py", "Login", "now")]

    assert lines(rows, 80)[0] == [0, 1, 2, 3, 4]
    left, [line] = lines(rows, 54)
    assert left == [0, 1, 2, 3]
    assert "/token.py" in line
    assert "…" in line
    assert lines(rows, 30)[0] == [0, 3] or lines(rows, 30)[0] == [0, 2, 3]


PRINTED = {
    "mission": mission.COLUMNS,
    "sorties of a mission": mission_page.SORTIES,
    "sortie": sortie.COLUMNS,
    "agent": agent.COLUMNS,
    "lock": lock.COLUMNS,
    "mail": mail.COLUMNS,
    "checkpoints": checkpoint.COLUMNS,
    "snapshot": (*snapshot.COLUMNS, snapshot.RUN),
    "config": config.COLUMNS,
    "missions in progress": status.MISSIONS,
    "recoveries": status.RECOVERIES,
    "machines": status.MACHINES,
    "agents of several machines": (*agent.COLUMNS, agent.MACHINE),
}


@pytest.mark.parametrize("name", PRINTED)
@given(st.data(), st.integers(min_value=60, max_value=100))
@settings(deadline=None)
def test_every_list_fits_whatever_stands_in_it(name, data, room):
    columns = PRINTED[name]
    first = data.draw(IDS)
    row = [first, *(data.draw(TEXT) for _ in columns[1:])]

    left, widths = fit(columns, [row], room)

    assert left[0] == 0
    assert sum(widths) + GAP * (len(widths) - 1) <= room
    assert shortened(columns[0], first, widths[0]).rstrip() == first


@pytest.mark.parametrize(
    ("room", "widths"), [(80, [10, 20, 40]), (70, [10, 16, 40]), (60, [10, 8, 38])]
)
def test_a_column_that_yields_is_shortened_before_a_text_that_is_wider(room, widths):
    columns = (
        Column(""),
        Column("", cut="end", least=8, yields=True),
        Column("", cut="end", least=18),
    )
    row = ["x" * wide for wide in (10, 20, 40)]
    assert fit(columns, [row], room) == ([0, 1, 2], widths)
