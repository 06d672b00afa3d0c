"""What is made from the code is checked in as it is made now."""

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.cli import full_parser
from fleetctl.completion import candidates
from fleetd.__main__ import parser as fleetd_parser
from tools import completions, generate


@pytest.mark.parametrize("name", generate.GENERATORS)
def test_the_generated_files_are_current(name: str) -> None:
    assert list(generate.outdated(name)) == [], generate.HOW_TO_RENEW


def test_what_is_missing_or_changed_is_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(generate.GENERATORS, "some", lambda: dict.fromkeys("abc", "text\n"))
    (tmp_path / "a").write_text("text\n")
    (tmp_path / "b").write_text("changed\n")
    assert generate.outdated("some", tmp_path) == {"b": "text\n", "c": "text\n"}


# What only the person knows, by the metavar that stands for it.
FREE = {
    *("TEXT", "TITLE", "SUBJECT", "N", "N|AGE", "MS", "AGE", "DAYS", "JSON", "TOKEN", "WORD"),
    *("WHERE", "URL", "SECONDS", "CMD", "REASONS", "AMOUNT", "ZONE", "QUERY", "PART", "SEQ"),
    "KIND:NAME:RESULT[:MS[:SUMMARY]]",
    *("TIME", "ADDR", "COMMIT"),
}
KNOWN = {*candidates.KINDS, *completions.WORDS, *completions.PATHS, "nothing"}


@pytest.mark.parametrize("parser", [full_parser, fleetd_parser], ids=["fleetctl", "fleetd"])
def test_every_value_is_completed_or_is_free_text(parser: Callable[[], ArgumentParser]) -> None:
    """Add ``completes=`` to the argument that is named; see fleetctl.args.with_completion."""
    for action in completions.arguments(parser()):
        if action.nargs == 0 or action.choices or action.help == SUPPRESS:
            continue
        told = f"{action.option_strings or action.dest} {action.metavar}: {action.help}"
        found = completions.kind(action)
        assert found is not None or action.metavar in FREE, f"nothing completes {told}"
        assert found is None or found in KNOWN, f"nobody knows {found}, which completes {told}"
