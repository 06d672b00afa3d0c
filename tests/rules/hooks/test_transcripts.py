"""Marks of transcripts: what shows that a conversation begins with something else than before."""

from pathlib import Path

import pytest

from fleetd.domain.core.context import TranscriptMark
from fleetd.engine.hooks import facts
from fleetd.engine.hooks.facts import log_of
from tests.support.gemini_log import GeminiLog, replaced, says


def mark_of(path: str | None) -> TranscriptMark | None:
    return log_of(path)[0]


def head(log: GeminiLog) -> str | None:
    mark = mark_of(str(log.path))
    assert mark is not None
    return mark.head


def test_a_log_begins_with_what_was_said_first_until_a_compaction(tmp_path: Path) -> None:
    log = GeminiLog(tmp_path)
    assert head(log) is None
    log.add(replaced())
    assert head(log) is None
    log.add(says("first"), {"$set": {"lastUpdated": "now"}}, says("second"))
    assert head(log) == "first"
    log.add(replaced())
    assert head(log) is None
    log.add({"$set": {"sessionId": "s"}}, replaced("first", "second"), says("third"))
    assert head(log) == "first"
    log.add(replaced("summary", "thanks", "third"), says("fourth"))
    assert head(log) == "summary"


def test_a_log_that_goes_on_in_another_file_is_not_shorter_than_before(tmp_path: Path) -> None:
    log = GeminiLog(tmp_path)
    log.add(replaced(), says("first"), says("second"))
    (tmp_path / "later").mkdir()
    later = GeminiLog(tmp_path / "later")
    later.add(replaced("first", "second"))
    assert mark_of(str(log.path)) == mark_of(str(later.path))


def test_of_a_long_log_only_the_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "LOG_BYTES", 2_000)
    log = GeminiLog(tmp_path)
    log.add(replaced("first"), *(says(f"message-{n}") for n in range(100)))
    assert head(log) is None
    log.add(replaced("summary", "thanks"))
    assert head(log) == "summary"


def test_other_transcripts_begin_with_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    path.write_text("one\ntwo\n")
    before = mark_of(str(path))
    path.write_text("one\ntwo\nthree\n")
    longer = mark_of(str(path))
    path.write_text("two\nthree\nfour\n")
    other = mark_of(str(path))
    assert before is not None
    assert longer is not None
    assert other is not None
    assert before.head == longer.head != other.head


def test_what_is_no_file_has_no_mark(tmp_path: Path) -> None:
    assert mark_of(None) is None
    assert mark_of(str(tmp_path)) is None
    assert mark_of(str(tmp_path / "gone.jsonl")) is None
