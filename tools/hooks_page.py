"""The rows of docs/hooks.md with the installed events of each agent CLI, from the registry."""

import re
from pathlib import Path

from fleetctl.integrations.registry import HARNESSES, Harness

PAGE = "docs/hooks.md"
_ROW = re.compile(r"^\| for \| .* \|$", re.MULTILINE)


def files() -> dict[str, str]:
    """Return the page, which lists the agent CLIs in the order of the registry."""
    page = (Path(__file__).resolve().parent.parent / PAGE).read_text("utf-8")
    rows = zip(_ROW.findall(page), HARNESSES.values(), strict=True)
    new_rows = iter([_row(harness) if harness.events else row for row, harness in rows])
    return {PAGE: _ROW.sub(lambda _: next(new_rows), page)}


def _row(harness: Harness) -> str:
    names = [event.name for event in harness.events]
    count = harness.always or len(names)
    text = ", ".join(names[:count])
    if later := ", ".join(names[count:]):
        since = ".".join(map(str, harness.tolerant_since))
        text += f"; from {since} on also {later}"
    return f"| for | {text} |"
