"""The manual pages: one for each command, and nothing in them that groff stumbles over."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fleetctl.cli import COMMANDS
from tools import manual, roff

PAGES = manual.files()
ROOT = Path(__file__).resolve().parents[2]


def shown(path: Path | str, text: str, columns: int = 80) -> str:
    """Return a page as a person reads it; a warning of groff is a failure."""
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    # -rLL: as wide as a terminal; -ww: every warning; -P-c: no colours; col takes bold away.
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", f"-rLL={columns}n", "-P-cbou"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert done.stderr == "", path
    return done.stdout


def test_every_command_has_a_page_and_the_alias_leads_to_one() -> None:
    names = {Path(path).name for path in PAGES}
    assert {f"fleetctl-{name}.1" for name in COMMANDS} <= names
    assert {"fleetctl.1", "fleetd.1", "fleet.1", "fleet-config.5"} <= names
    assert PAGES[f"{manual.PLACE}/man1/fleet.1"] == ".so man1/fleetctl.1\n"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: Path(path).name)
def test_a_page_is_shown_without_a_warning_within_its_width(path: str) -> None:
    if "\n.SH" not in PAGES[path]:
        return
    text = shown(path, PAGES[path])
    for title in ("NAME", "DESCRIPTION", "SEE ALSO"):
        assert f"\n{title}\n" in text
    # Examples are lines to copy, as long as they are.
    assert max(map(len, text.partition("\nEXAMPLES\n")[0].splitlines())) <= 80
    assert "usage:" not in text


def test_pages_lead_to_pages_that_are_there() -> None:
    named = {Path(path).stem for path in PAGES}
    for path, text in PAGES.items():
        _, _, also = text.partition('.SH "SEE ALSO"')
        for line in also.splitlines():
            name = line.removeprefix("\\fB").partition("\\fR(")[0].replace("\\-", "-")
            assert not name.startswith("fleet") or name in named, f"{path}: {name}"


def test_a_literal_is_bold_wherever_its_line_would_break() -> None:
    for before in range(70, 95):
        lines = roff.paragraph(f"{'x' * before} ``fleetctl daemon`` runs it.")
        assert "\\fBfleetctl daemon\\fR" in "\n".join(lines), before


def test_what_roff_would_obey_is_text() -> None:
    hostile = ".SH a\n'br\n\\fB --x ~ ^ `y` \\n[x] ..."
    page = roff.page("x", 1, "s", "b", roff.section("description", roff.example(hostile)))
    text = shown("hostile", page)
    for line in hostile.splitlines():
        assert line in text
