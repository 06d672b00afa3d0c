"""The redactor finds secrets as people and agents type them, and leaves other lines alone."""

import pytest

from fleetd.domain.redaction.redact import redact, redact_data
from tests.unit.redaction_corpus import Line, corpus

LINES = corpus()
WITH_SECRET = [line for line in LINES if line.secret is not None]
HARMLESS = [line for line in LINES if line.secret is None]


def test_the_corpus_is_large_enough_to_mean_something() -> None:
    assert len(WITH_SECRET) > 250
    assert len(HARMLESS) > 180
    assert len({line.category for line in WITH_SECRET}) >= 10


@pytest.mark.parametrize("line", WITH_SECRET, ids=lambda line: line.category)
def test_redaction_leaves_no_secret_in_a_line_that_agents_type(line: Line) -> None:
    assert line.secret is not None
    found = redact(line.text)
    assert line.secret not in found
    assert "[redacted:" in found
    assert redact(found) == found


@pytest.mark.parametrize("line", WITH_SECRET, ids=lambda line: line.category)
def test_redaction_finds_the_secret_in_data_and_in_the_middle_of_a_text(line: Line) -> None:
    assert line.secret is not None
    assert line.secret not in redact(f"first line\n{line.text}\nlast line")
    data = {"tool_input": {"command": line.text, "description": "run it"}}
    assert line.secret not in redact_data(data)["tool_input"]["command"]


@pytest.mark.parametrize("line", HARMLESS, ids=lambda line: line.category)
def test_redaction_leaves_a_harmless_line_as_it_is(line: Line) -> None:
    assert redact(line.text) is line.text
