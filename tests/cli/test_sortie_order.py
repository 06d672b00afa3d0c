"""``sortie create|update --after``, ``--no-after`` and ``sortie list --ready``."""

import pytest


@pytest.fixture
def pair(done, mission):
    return [each["id"] for each in done("sortie", "list", "--json").json]


def ready(done):
    return [each["title"] for each in done("sortie", "list", "--ready", "--json").json]


def test_sorties_wait_for_others_until_those_are_completed(done, pair):
    one, two = pair
    third = done("sortie", "create", "Three", "--after", one, "--after", two).id("srt")
    assert ready(done) == ["One", "Two"]
    shown = done("sortie", "show", third).out
    assert f"Waits for: {one}, {two}" in shown
    done("sortie", "complete", one, "--agent", "a")
    [told] = [each for each in done("sortie", "list", "--json").json if each["id"] == third]
    assert (told["depends_on"], told["waits_for"]) == ([one, two], [two])
    assert (
        done("sortie", "update", third, "--after", one).out == f"Sortie updated: {third}  Three\n"
    )
    assert ready(done) == ["Two", "Three"]
    done("sortie", "update", third, "--after", two, "--title", "Third", "--priority", "high")
    assert ready(done) == ["Two"]
    assert "Two" in done("sortie", "list", "--ready").out
    done("sortie", "update", third, "--no-after")
    assert ready(done) == ["Two", "Third"]


def test_what_cannot_be_is_refused_with_the_reason(done, run, pair):
    one, two = pair
    done("sortie", "update", two, "--after", one)
    cycle = run("sortie", "update", one, "--after", two)
    assert cycle.status == 2
    assert f"{one} -> {two} -> {one}" in cycle.err
    unknown = run("sortie", "create", "Three", "--after", "srt-99999999")
    assert unknown.status == 4
    assert "srt-99999999" in unknown.err
    nothing = run("sortie", "update", one)
    assert nothing.status == 2
    assert "There is nothing to change" in nothing.err
    both = run("sortie", "update", one, "--after", two, "--no-after")
    assert both.status == 2
    assert "exclude each other" in both.err
    assert run("sortie", "update", "srt-99999999", "--no-after").status == 4
