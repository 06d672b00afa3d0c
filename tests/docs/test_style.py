"""README and docs keep the rules of docs/style.md that a program can see."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import style
from .pages import ROOT, name

PAGES = style.pages()
# Help and errors are still being rewritten: set it to True to assert them.
HELP_AND_ERRORS_ARE_PLAIN = True
README_LINES = 150
PAGE_LINES = {"docs/hooks.md": 200, "docs/operations.md": 200, "docs/synced.md": 200}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_is_written_in_plain_words(page: Path) -> None:
    wrong = [each for text in style.of_page(page) for each in style.violations(text)]
    assert wrong == [], "\n".join(["see docs/style.md", *wrong])


@pytest.mark.skipif(not HELP_AND_ERRORS_ARE_PLAIN, reason="help and errors are being rewritten")
@pytest.mark.parametrize("texts", [style.of_help, style.of_errors])
def test_help_and_errors_are_written_in_plain_words(
    texts: Callable[[], Iterator[style.Text]],
) -> None:
    wrong = [each for text in texts() for each in style.violations(text)]
    assert wrong == [], "\n".join(["see docs/style.md", *wrong])


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_begins_with_its_use(page: Path) -> None:
    if page != ROOT / "README.md":
        first = page.read_text("utf-8").splitlines()[2]
        assert first.startswith("After this page"), first


@pytest.mark.parametrize(("page", "most"), [("README.md", README_LINES), *PAGE_LINES.items()])
def test_a_page_is_not_longer_than_a_reader_has_patience(page: str, most: int) -> None:
    assert len((ROOT / page).read_text("utf-8").splitlines()) <= most


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("What is left over is removed at the next start.", "a clause as a subject"),
        ("The file is fine; what is left over goes later on.", "a clause as a subject"),
        ("The daemon lies in wait.", "'lies'"),
        ("Read the letter.", "'letter'"),
        ("The agent was told about it.", "'was told'"),
        ("The file stays as it is.", "'as it is'"),
        (" ".join(["word"] * 26) + ".", "26 words"),
    ],
)
def test_a_violation_is_seen(text: str, wrong: str) -> None:
    (found,) = style.violations(style.Text("here", text))
    assert wrong in found


@pytest.mark.parametrize(
    "text",
    [
        "What does it cost?",
        "The daemon writes the file as it is closed.",
        " ".join(["word"] * 20) + ". " + " ".join(["Word"] * 20) + ".",
        "what it does",
    ],
)
def test_plain_words_pass(text: str) -> None:
    assert style.violations(style.Text("here", text)) == []


def test_quoted_output_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "name", lambda page: page.name)
    page = tmp_path / "a.md"
    page.write_text(
        "It prints `a letter that\nlies here`.\n\n```text\nit lies\n```\n\n| it lies |\n"
    )
    (found,) = [each for text in style.of_page(page) for each in style.violations(text)]
    assert found.startswith("a.md:8: 'lies'")


def test_help_and_errors_are_read() -> None:
    assert len(list(style.of_help())) > 300
    assert len(list(style.of_errors())) > 100
