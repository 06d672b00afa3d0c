"""Real text without secrets stays readable: this repository's own files and history."""

import shutil
import subprocess
from pathlib import Path

import pytest

from fleetd.domain.redaction.redact import _EVERY, _live, _replace, redact

ROOT = Path(__file__).resolve().parents[2]
OURS = ("fleetd", "fleetctl", "tests", "docs", "benchmarks", "README.md", "CHANGELOG.md")
# They are about secrets, and hold what looks like one.
ABOUT_SECRETS = {
    "redaction_corpus.py",
    "redaction_corpus_second.py",
    "redaction_corpus_third.py",
    "secret_samples.py",
    "test_redaction.py",
    "test_redaction_corpus.py",
    "test_request_redaction.py",
}
ALLOWED = 0.001
# A request's text is no longer than this.
PIECE = 65_536
# The newest; the whole history takes longer with every commit.
COMMITS = 150


def own_text() -> str:
    files = [path for name in OURS for path in [ROOT / name, *sorted((ROOT / name).rglob("*"))]]
    return "\n".join(
        path.read_text("utf-8")
        for path in files
        if path.suffix in {".py", ".md", ".sql"} and path.name not in ABOUT_SECRETS
    )


def history() -> str:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone of the repository")
    log = [
        "git",
        "-C",
        str(ROOT),
        "log",
        f"--max-count={COMMITS}",
        "-p",
        "--",
        ".",
        *(f":!*{name}" for name in ABOUT_SECRETS),
    ]
    return subprocess.run(log, check=True, capture_output=True).stdout.decode("utf-8", "replace")


def replaced(text: str) -> list[tuple[str, str]]:
    """Return the kinds that were found and what was replaced, with what stands before it."""
    found = []
    for search in _live(text, _EVERY):
        found += [(kind, text[max(0, a - 30) : b]) for a, b, kind in search.find(text)]
        text = _replace(text, search)
    return found


def payloads() -> str:
    """Return what agent CLIs really sent, as the tests of the adapters keep it."""
    files = sorted((ROOT / "tests" / "harness" / "payloads").rglob("*"))
    return "\n".join(path.read_text("utf-8") for path in files if path.is_file())


@pytest.mark.parametrize("source", [own_text, history, payloads])
def test_redaction_marks_hardly_any_line_of_real_text(source) -> None:
    lines = source().splitlines()
    assert len(lines) > 200
    marked = [line for line in lines if redact(line) != line]
    assert len(marked) <= ALLOWED * len(lines), marked[:20]


@pytest.mark.parametrize("source", [own_text, history])
def test_real_text_stays_readable(source) -> None:
    text = source()
    assert len(text) > 500_000
    changed, what = 0, []
    for start in range(0, len(text), PIECE):
        piece = text[start : start + PIECE]
        if redact(piece) != piece:
            hits = replaced(piece)
            what += hits
            changed += sum(len(hit) for _, hit in hits)
    assert changed < ALLOWED * len(text), what
