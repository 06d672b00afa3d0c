"""Which events the executable on this machine can be told of; the only thing it asks is a version.

Builds of Claude Code before 2.1.101 ignore the whole settings file for one event that they do not
know, so what they surely know is all that they get.
"""

import re
from collections.abc import Set

from .registry import Event, Harness

ANSWER_S = 10


def installable(harness: Harness, present: Set[str]) -> tuple[list[Event], list[str]]:
    """Return the events to install for, and what to tell when these are not all.

    ``present`` are those that are installed: they stay.
    """
    events = list(harness.events)
    version = _version(harness) if harness.tolerant_since else None
    if not harness.tolerant_since or (version and version >= harness.tolerant_since):
        return events, []
    known = [e for at, e in enumerate(events) if at < harness.always or e.name in present]
    left_out = ", ".join(event.name for event in events if event not in known)
    if not left_out:
        return known, []
    since = ".".join(map(str, harness.tolerant_since))
    found = "could not be found out" if version is None else f"is {'.'.join(map(str, version))}"
    told = (
        f"The version of {harness.title} {found}; before {since} these events could make it "
        f"ignore the file, so they were left out: {left_out}. Install again after an upgrade."
    )
    return known, [told]


def _version(harness: Harness) -> tuple[int, ...] | None:
    executable = harness.executable()
    if executable is None:
        return None
    # Imported here: most that load this module need it never.
    import subprocess

    try:
        answer = subprocess.run(
            [executable, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\b(\d+)\.(\d+)\.(\d+)\b", answer)
    return tuple(map(int, found.groups())) if found else None
