"""Every message that docs/troubleshooting.md explains is one that the code can say."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from .pages import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
# What is no message: a name of files, a mark behind messages.
NOT_SAID = {"*.unreadable"}
MESSAGES = [each for each in ROW.findall(PAGE.read_text("utf-8")) if each not in NOT_SAID]


def text(node: ast.AST) -> str | None:
    """Return a string of the source, with … where something is filled in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text(part) or "…" for part in node.values)
    return None


@cache
def said() -> tuple[str, ...]:
    """Return every string in the code."""
    return tuple(_strings())


def _strings() -> Iterator[str]:
    for package in ("fleetd", "fleetctl"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if (found := text(node)) is not None:
                    yield found


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_that_is_explained_is_said_by_the_code(message: str) -> None:
    wanted = re.compile(".*?".join(re.escape(part.strip()) for part in message.split("…")), re.S)
    assert any(wanted.search(each) for each in said()), f"nobody says {message!r}"


def test_there_are_many() -> None:
    assert len(MESSAGES) > 40
