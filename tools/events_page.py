"""The tables of docs/events.md, from the event types and their payloads; keeps its prose."""

import inspect
import types
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec

from fleetd.protocol.event_types import GROUPS, EventType
from fleetd.protocol.events import PAYLOADS

PAGE = "docs/events.md"


def files() -> dict[str, str]:
    """Return the page by its path."""
    page = Path(__file__).resolve().parent.parent / PAGE
    lines, section = [], ""
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not line.startswith("| `"):
            lines.append(line)
        if line.startswith("|---"):
            lines += map(_row, GROUPS[section][0])
    return {PAGE: "\n".join(lines) + "\n"}


def _row(kind: EventType) -> str:
    meaning, fields = kind.meaning, kind.fields
    if kind.name in PAYLOADS:
        payload = PAYLOADS[kind.name]
        hints = get_type_hints(payload)
        fields = tuple(
            field.name + "?" * (types.NoneType in get_args(hints[field.name]))
            for field in msgspec.structs.fields(payload)
        )
        text = " ".join((inspect.getdoc(payload) or "").replace("``", "`").split())
        meaning = (text[:1].lower() + text[1:]).removesuffix(".")
    data = ", ".join(f"`{field}`" for field in fields)
    activity = "yes" if kind.activity else "no"
    return f"| `{kind.name}` | {activity} |{f' {data} ' if data else ' '}| {meaning} |"
