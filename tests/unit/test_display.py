"""Texts for a reader: how long ago something was, and what is kept of a text that is too long."""

import pytest

from fleetd.protocol.display import ago, short_ends, verbatim_end

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (-HOUR, "just now"),
        (0, "just now"),
        (MINUTE - 1, "just now"),
        (MINUTE, "1 minute ago"),
        (2 * MINUTE - 1, "1 minute ago"),
        (2 * MINUTE, "2 minutes ago"),
        (HOUR - 1, "59 minutes ago"),
        (HOUR, "1 hour ago"),
        (2 * HOUR - 1, "1 hour ago"),
        (2 * HOUR, "2 hours ago"),
        (DAY - 1, "23 hours ago"),
        (DAY, "1 day ago"),
        (2 * DAY - 1, "1 day ago"),
        (400 * DAY, "400 days ago"),
    ],
)
def test_a_time_is_as_long_ago_as_people_say_it(ms: int, told: str) -> None:
    assert ago(ms) == told


LINES = "one\ntwo\nthree"
WHOLE = "  > one\n  > two\n  > three"


@pytest.mark.parametrize(
    ("limit", "end"),
    [
        (len(WHOLE) + 6, WHOLE),
        # Room for the mark of what is left out is kept before it is known whether that is needed.
        (len(WHOLE) + 5, "  > …\n  > two\n  > three"),
        (len("  > …\n  > two\n  > three"), "  > …\n  > two\n  > three"),
        (len("  > …\n  > two\n  > three") - 1, "  > …\n  > three"),
        (len("  > …\n  > three"), "  > …\n  > three"),
        (len("  > …\n  > three") - 1, "  > …three"),
        (len("  > …three") - 1, "  > …hree"),
    ],
)
def test_the_end_of_a_text_is_whole_lines_up_to_its_limit(limit: int, end: str) -> None:
    assert verbatim_end(LINES, limit) == end
    assert len(end) <= limit


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\x1b\u200b\n\u202e", "\r\n\t\n"])
def test_the_end_of_nothing_is_nothing(text: str) -> None:
    assert verbatim_end(text, 80) == ""


def test_one_long_line_keeps_its_end() -> None:
    told = verbatim_end("x" * 500 + "the end", 80)
    assert told == "  > …" + "x" * 68 + "the end"
    assert len(told) == 80


def test_a_long_line_before_short_ones_goes_as_a_whole() -> None:
    assert verbatim_end("a\n" + "x" * 500 + "\nb\nc", 80) == "  > …\n  > b\n  > c"


def test_a_text_that_was_cut_before_has_one_mark_of_it() -> None:
    assert verbatim_end("…\nb\nc", 80) == "  > …\n  > b\n  > c"
    assert verbatim_end("x" * 500 + "\n…\nb\nc", 80) == "  > …\n  > b\n  > c"


def test_the_end_of_a_text_is_cleaned_line_by_line() -> None:
    text = "one\r\n\r\n\x1b[31m### Next  Steps\x07\n\n  - \u202erm\u200b\u2028-rf  "
    assert verbatim_end(text, 200) == "  > one\n  > [31m### Next Steps\n  > - rm\n  > -rf"


@pytest.mark.parametrize("limit", range(6, 120))
def test_an_end_is_never_above_its_limit(limit: int) -> None:
    for text in (LINES, "a" * 300, "b\n" * 100, "\n".join("c" * n for n in range(60))):
        told = verbatim_end(text, limit)
        assert 0 < len(told) <= limit
        assert all(line.startswith("  > ") for line in told.split("\n"))
        assert text.rstrip("\n").endswith(told.rpartition("  > ")[2].removeprefix("…"))


@pytest.mark.parametrize("limit", range(16, 60))
def test_of_a_text_on_one_line_both_ends_stay(limit: int) -> None:
    text = "begin " + "x" * 100 + " end"
    told = short_ends(text, limit)
    assert limit - 3 <= len(told) <= limit
    first, _, last = told.partition(" … ")
    assert text.startswith(first)
    assert text.endswith(last)
    assert len(last) > len(first) >= 3


def test_what_fits_stays_as_it_is() -> None:
    assert short_ends("begin\n\x1bend", 9) == "begin end"
    assert short_ends("", 20) == ""
