"""docs/events.md lists every event type, with its fields, and none that does not exist."""

import re
import types
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

import msgspec
import pytest

from fleetd.protocol.event_types import EVENT_TYPES
from fleetd.protocol.events import PAYLOADS, REPORTED_ACTIVITY, Payload

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMES = re.compile(r"`([a-z_?]+)`")


class Line(NamedTuple):
    """What a row of the page says of a type; the fields bear a question mark when optional."""

    type: str
    activity: str
    fields: tuple[str, ...]
    meaning: str


def lines() -> list[Line]:
    """Return the rows of all tables on the page, its heads and rules apart."""
    found = []
    for text in (DOCS / "events.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        if text.startswith("| `"):
            kind, activity, fields, meaning = cells
            found.append(Line(kind.strip("`"), activity, tuple(NAMES.findall(fields)), meaning))
    return found


def fields(payload: type[Payload]) -> tuple[str, ...]:
    """Return a payload's fields as the page writes them: what may be None may be left out."""
    hints = get_type_hints(payload)
    return tuple(
        field.name + ("?" if types.NoneType in get_args(hints[field.name]) else "")
        for field in msgspec.structs.fields(payload)
    )


def test_every_type_is_listed_once_and_nothing_else() -> None:
    listed = [line.type for line in lines()]
    assert sorted(listed) == sorted({*PAYLOADS, *REPORTED_ACTIVITY})


@pytest.mark.parametrize("line", [line for line in lines() if line.type in PAYLOADS], ids=str)
def test_what_fleetd_writes_is_described_as_it_is(line: Line) -> None:
    payload = PAYLOADS[line.type]
    assert line.activity == ("yes" if EVENT_TYPES[line.type].activity else "no")
    assert line.fields == fields(payload)
    assert line.meaning


def test_what_harnesses_report_is_described_as_in_the_protocol() -> None:
    told: dict[str, set[str]] = {}
    for text in (DOCS / "protocol.md").read_text("utf-8").splitlines():
        kinds, *rest = text.strip("|").split("|")
        for kind in REPORTED_ACTIVITY.intersection(NAMES.findall(kinds)):
            told[kind] = set(NAMES.findall(rest[0]))
    reported = [line for line in lines() if line.type in REPORTED_ACTIVITY]
    assert {line.type: set(line.fields) for line in reported} == told
    assert {line.activity for line in reported} == {"yes"}


@pytest.mark.parametrize("page", ["docs/protocol.md", "README.md"])
def test_the_page_is_linked(page: str) -> None:
    assert "events.md)" in (DOCS.parent / page).read_text("utf-8")
