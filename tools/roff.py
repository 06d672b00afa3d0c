"""Manual pages as roff, from parts; must not know the subject of any page."""

import re
import textwrap
from collections.abc import Iterable, Sequence

# A part of a usage line that must not be broken: [--option VALUE], or one word.
_UNBROKEN = re.compile(r"\[[^][]*(?:\[[^][]*\][^][]*)*\]|\([^()]*\)|\S+")
# A space at which textwrap does not break a line.
_NO_BREAK = "\u00a0"
_SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def escape(text: str) -> str:
    """Return text with roff's special characters escaped."""
    escaped = "".join(_SPECIAL.get(character, character) for character in text)
    escaped = escaped.replace("\u2026", "...").replace("\u2013", "\\(en")
    return re.sub(r"^([.])", r"\\&\1", escaped, flags=re.MULTILINE)


def bold(text: str) -> str:
    """Return text that the user types literally."""
    return f"\\fB{escape(text)}\\fR"


def italic(text: str) -> str:
    """Return text that is a placeholder."""
    return f"\\fI{escape(text)}\\fR"


def rich(text: str) -> str:
    """Return text in which ``words between two backticks`` are bold."""
    parts = re.split(r"``(.+?)``", text)
    return "".join(bold(part) if number % 2 else escape(part) for number, part in enumerate(parts))


def paragraph(text: str) -> list[str]:
    """Return lines of one paragraph."""
    return [".P", *_filled(text)]


def _filled(text: str) -> list[str]:
    """Return lines of rich text; what is between two backticks stays on one line."""
    words = " ".join(text.split())
    words = re.sub(r"``.+?``", lambda part: part[0].replace(" ", _NO_BREAK), words)
    return [rich(line.replace(_NO_BREAK, " ")) for line in textwrap.wrap(words, 90)]


def section(title: str, *blocks: Iterable[str]) -> list[str]:
    """Return a section; nothing when it is empty."""
    lines = [line for block in blocks for line in block]
    return [f'.SH "{title.upper()}"', *lines] if lines else []


def subsection(title: str, *blocks: Iterable[str]) -> list[str]:
    """Return a subsection."""
    return [f'.SS "{escape(title)}"', *(line for block in blocks for line in block)]


def entries(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return a list of terms, which are roff already, and their descriptions."""
    lines = []
    for term, text in pairs:
        lines += [".TP", term, *(_filled(text) or ["\\&"])]
    return lines


def choices(text: str) -> str:
    """Return roff that allows a line break between choices."""
    return re.sub(r"([|,])(?=[a-z])", r"\1\\:", text)


def usage(text: str, hidden: Sequence[str] = ()) -> list[str]:
    """Return a synopsis from argparse's usage, broken only between options and choices."""
    words = text.split(":", 1)[1].split()
    command = next(number for number, word in enumerate(words) if not word[0].islower())
    parts = [
        choices(escape(part).replace(" ", "\\ "))
        for part in _UNBROKEN.findall(" ".join(words[command:]))
        if part not in hidden
    ]
    return [f'.SY "{escape(" ".join(words[:command]))}"', *parts, ".YS"]


def example(text: str) -> list[str]:
    """Return lines that are shown verbatim."""
    return [".P", ".EX", *(escape(line) for line in textwrap.dedent(text).splitlines()), ".EE"]


def page(name: str, number: int, source: str, brief: str, body: Sequence[str]) -> str:
    """Return a whole page.

    It has no date: the version tells its age, and the output is the same every day.
    """
    head = f'.TH "{escape(name).upper()}" "{number}" "" "{escape(source)}" "fleetd"'
    note = '.\\" Written by make generate; do not edit.'
    lines = [head, note, ".ad l", ".SH NAME", f"{escape(name)} \\- {escape(brief)}", *body]
    return "\n".join(lines) + "\n"
