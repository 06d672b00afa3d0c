"""Finds the briefing in what a model was sent; must not know how a briefing is made."""

import re

HEADING = "## Recovery Context"


def briefings(text: str) -> int:
    """Return how many briefings a request holds."""
    return text.count(HEADING)


def steps(text: str) -> str:
    """Return what a request's briefing says under Next Steps."""
    found = re.search(r"### Next Steps(.*?)###", text, re.DOTALL)
    assert found, "no next steps were told"
    return found[1]


def changed(text: str) -> list[str]:
    """Return the files that a request's briefing says were changed."""
    found = re.search(r"### Files Modified\\n(.*?)\\n\\n", text)
    return [line.removeprefix("- ") for line in found[1].split("\\n")] if found else []


def running(text: str) -> list[str]:
    """Return the lines of a request's briefing about what runs for the agent; the body is JSON."""
    found = re.search(r"### Running For You\\n(.*?)\\n\\n", text)
    return found[1].split("\\n") if found else []
