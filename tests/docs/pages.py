"""The pages of the documentation as a reader meets them: blocks, spans, links; runs nothing.

What a block is for stands in its fence:

=============  =====================================================================================
``sh``         commands; a person says yes to every question
``console``    commands behind ``$``, with what they print; ids that are shown there are taken over
``python``     a program that runs; so does ``js``
``toml``       a configuration file of fleetd
``json``       valid JSON; ``text``, ``ini``, ``promql`` and the like are only to be read
=============  =====================================================================================

A block that begins with a comment holding nothing but a file's name is saved under that name. A
command whose comment ends in ``until Ctrl+C`` or ``q leaves`` goes on, and is ended. Two invisible
comments may stand before a block: ``<!-- not run: why -->``, and ``<!-- first: commands -->``,
which sets the stage.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_FENCE = re.compile(r"^ *(`{3,})(\S*)\s*$")
_COMMENT = re.compile(r"<!--\s*(?P<kind>not run|first):\s*(?P<text>.*?)\s*-->", re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LINK = re.compile(
    r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|\b(?:src|href)=\"([^\"]+)\"|!\[[^\]]*\]\(([^)\s]+)\)"
)
_HEADING = re.compile(r"^#+ +(.*?) *$")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``first`` sets its stage, ``not_run`` says why it cannot run here."""

    page: Path
    line: int
    language: str
    text: str
    first: str = ""
    not_run: str = ""

    @property
    def place(self) -> str:
        """Return where it stands, for people."""
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    """Return a page's path in the checkout."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page in their order."""
    lines = page.read_text("utf-8").splitlines()
    between: list[str] = []
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if not fence:
            between.append(lines[number])
            number += 1
            continue
        end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == fence[1])
        indent = len(lines[number]) - len(lines[number].lstrip())
        text = "".join(f"{line[indent:]}\n" for line in lines[number + 1 : end])
        said = dict(_COMMENT.findall("\n".join(between)))
        yield Block(
            page, number + 1, fence[2], text, said.get("first", ""), said.get("not run", "")
        )
        between = []
        number = end + 1


def prose(page: Path) -> str:
    """Return a page without its blocks and comments, its lines still where they were."""
    return without_blocks(page.read_text("utf-8"))


def without_blocks(text: str) -> str:
    """Return a text without blocks and comments, its lines still where they were."""
    kept, closing = [], ""
    for line in text.splitlines():
        fence = _FENCE.match(line)
        inside = bool(closing) or bool(fence)
        if fence:
            closing = "" if closing == fence[1] else closing or fence[1]
        kept.append("" if inside else line)
    return re.sub(r"<!--.*?-->", _emptied, "\n".join(kept), flags=re.DOTALL)


def _emptied(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def spans(page: Path) -> Iterator[tuple[int, str]]:
    """Yield what stands between backticks in the prose, with the number of its line."""
    text = prose(page)
    for found in _SPAN.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, " ".join(found[1].split())


def links(page: Path) -> Iterator[str]:
    """Yield where a page's links and pictures lead."""
    for groups in _LINK.findall(prose(page)):
        yield next(filter(None, groups))


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings make, as GitHub names them."""
    found: set[str] = set()
    for line in prose(page).splitlines():
        if heading := _HEADING.match(line):
            shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
            anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
            number = sum(1 for each in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", each))
            found.add(f"{anchor}-{number}" if number else anchor)
    return found
