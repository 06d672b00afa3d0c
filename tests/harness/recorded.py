"""The recorded payloads, and what all tests of adapters look at in the same way."""

import json
from pathlib import Path
from typing import Any

import msgspec

from fleetd.harness.report import AnyHappening, Report

PAYLOADS = Path(__file__).parent / "payloads"


def recorded(harness: str, name: str) -> dict[str, Any]:
    """Return the payload in ``payloads/<harness>/<name>.json``."""
    found: dict[str, Any] = json.loads((PAYLOADS / harness / f"{name}.json").read_text("utf-8"))
    return found


def names(harness: str) -> list[str]:
    """Return the names of all payloads of a harness."""
    return sorted(file.stem for file in (PAYLOADS / harness).glob("*.json"))


def texts_of(report: Report) -> list[str]:
    """Return every text that a report holds."""
    found: list[str] = []
    waiting: list[Any] = [msgspec.to_builtins(report)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return found


def only(report: Report) -> AnyHappening:
    """Return the one thing that a report tells."""
    (happening,) = report.happenings
    return happening
