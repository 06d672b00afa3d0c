"""The rules of docs/style.md that a program can check; ``python -m tests.docs.style`` runs it.

Looked at are the prose of README and docs, the help of every command, and the texts of errors and
log lines. Left out is quoted output only: fenced blocks, code in backticks, measured tables. Tables
that ``make generate`` writes are judged where their words come from, in the code.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .pages import PAGES, ROOT, name, without_blocks

LONGEST = 25
# A pattern, and what plain English has in its place.
WORDS = {
    r"stands": "is, applies, means",
    r"lies": "is",
    r"(?:is|are|was|were|be|been|being) told": "receives, reads, learns",
    r"says so": "reports it",
    r"as (?:it|they) (?:is|are|was|were)(?=[,.;:)]|$| (?:and|before)\b)": "unchanged",
    r"anew": "again",
    r"in vain": "without effect",
    r"without a word": "silently, without notice",
    r"of its": "its, or name the owner",
    r"letters?": "message",
    r"whoever|whosoever": "a process that, an agent that, anyone who",
    r"mend(?:s|ed|ing)?": "repair",
    r"call(?:s|ed|ing)?(?: (?:it|them|a mission|the mission))? off": "cancel",
    r"looking on": "follow, watch",
    r"(?:hear|hears|heard) of": "learn, receive",
    r"digests?": "checksum",
    r"recovery prompts?": "briefing",
    r"give(?:s|n)? way": "is deleted, is dropped",
}
_WORDS = {re.compile(rf"\b(?:{word})\b", re.IGNORECASE): use for word, use in WORDS.items()}
_CLAUSE = re.compile(r"(?:^|[;:] )(?:What|Whatever|Whoever|Whichever|Who|Whose)\b", re.IGNORECASE)
_GENERATED = re.compile(
    r"<!-- (?:Written by|measured: begin|requests: begin|shared: begin).*?-->.*?"
    r"<!-- (?:End\b[^>]*|measured: end|requests: end|shared: end) -->",
    re.DOTALL,
)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_NEW = re.compile(r"^\s*(?:[-*+]|\d+\.)\s|^#+ |^\||^>")
_END = re.compile(r"(?<=[.!?])[\"”')]*\s+(?=[\"“('(]?(?:[A-Z0-9…]|fleet|pip|uv |systemd))")
_WORD = re.compile(r"[^\s]*\w[^\s]*")
# Stands for quoted code, which is one word whatever it holds.
CODE = "CODE"
# Written by make generate from the code.
GENERATED = ("docs/commands.md", "docs/reference/")


class Text(NamedTuple):
    """A piece of prose that belongs together, and where it was found."""

    place: str
    text: str


def violations(found: Text) -> list[str]:
    """Return what is against the rules in a text, each with its place."""
    wrong = []
    plain = " ".join(found.text.split())
    for pattern, use in _WORDS.items():
        wrong += [f"{hit[0]!r}: rather {use}" for hit in pattern.finditer(plain)]
    for sentence in _END.split(plain):
        words = _WORD.findall(sentence)
        if len(words) > LONGEST:
            wrong.append(f"{len(words)} words: {sentence}")
        if len(words) > 3 and not sentence.endswith("?") and _CLAUSE.search(sentence):
            wrong.append(f"a clause as a subject: {sentence}")
    return [f"{found.place}: {each}" for each in wrong]


def pages() -> list[Path]:
    """Return the pages that people write."""
    return [page for page in PAGES if not name(page).startswith(GENERATED)]


def of_page(page: Path) -> Iterator[Text]:
    """Yield the paragraphs, items of lists, headings and cells of a page."""
    text = _GENERATED.sub(lambda hit: "\n" * hit[0].count("\n"), page.read_text("utf-8"))
    if name(page) == "docs/events.md":
        text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    text = _CODE.sub(lambda hit: CODE + "\n" * hit[0].count("\n"), without_blocks(text))
    text = _LINK.sub(lambda hit: hit[1], text)
    piece: list[str] = []
    begun = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if not line.strip() or _NEW.match(line):
            yield from _pieces(f"{name(page)}:{begun}", "\n".join(piece))
            piece, begun = [], number
        if line.strip():
            piece.append(line)


def _pieces(place: str, text: str) -> Iterator[Text]:
    cells = text.strip().strip("|").split("|") if text.lstrip().startswith("|") else [text]
    for cell in cells:
        plain = re.sub(r"^\s*(?:[-*+]|\d+\.|#+|>)\s+", "", cell)
        plain = re.sub(r"\*\*|__|(?<!\w)[*_]|[*_](?!\w)", "", plain).strip()
        if re.search(r"\w", plain):
            yield Text(place, plain)


def of_help() -> Iterator[Text]:
    """Yield the help of every command, option, tool, parameter and event."""
    from fleetctl.cli import full_parser
    from fleetctl.mcp_server.server import listing
    from fleetd.protocol import param_docs
    from fleetd.protocol.events import PAYLOADS

    yield from _of_parser("fleetctl", full_parser())
    for tool in json.loads(listing())["tools"]:
        yield Text(f"tool {tool['name']}", tool["description"])
    for parameter, meaning in (param_docs._EVERYWHERE | param_docs._HERE).items():
        yield Text(f"parameter {parameter}", _CODE.sub(CODE, meaning))
    for kind, payload in PAYLOADS.items():
        yield Text(f"event {kind}", _CODE.sub(CODE, payload.__doc__ or ""))


def _of_parser(command: str, parser: argparse.ArgumentParser) -> Iterator[Text]:
    described = (parser.description or "", (parser.epilog or "").partition("examples:")[0])
    yield from (Text(f"{command} --help", text) for text in described if text.strip())
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield Text(f"{command} {choice.dest}", choice.help or "")
            for word, below in action.choices.items():
                yield from _of_parser(f"{command} {word}", below)
        elif action.help and action.help != argparse.SUPPRESS:
            yield Text(f"{command} {'/'.join(action.option_strings) or action.dest}", action.help)


_LOGS = {"debug", "info", "warning", "error", "exception", "critical"}
_NAMED = {"message", "hint", "reason", "problem", "detail"}


def of_errors() -> Iterator[Text]:
    """Yield the texts of errors, of their hints, and of lines of the log."""
    for package in ("fleetd", "fleetctl"):
        for file in sorted((ROOT / package).rglob("*.py")):
            yield from _said(file)


def _said(file: Path) -> Iterator[Text]:
    tree = ast.parse(file.read_text("utf-8"))
    raised = {id(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        says = id(node) in raised or called in _LOGS or called.endswith("Error")
        named = [each.value for each in node.keywords if each.arg in _NAMED]
        for value in (*(node.args if says else ()), *named):
            text = _text(value)
            if text and " " in text.strip():
                yield Text(f"{name(file)}:{value.lineno}", text)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _CODE.sub(CODE, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or CODE for part in node.values)
    return ""


def main() -> int:
    """Print every violation; the exit status says whether there is one."""
    sources = {
        "pages": (text for page in pages() for text in of_page(page)),
        "help": of_help(),
        "errors": of_errors(),
    }
    wanted = sys.argv[1:] or list(sources)
    total = 0
    for source in wanted:
        found = [wrong for text in sources[source] for wrong in violations(text)]
        print(*found, f"{source}: {len(found)}", sep="\n")
        total += len(found)
    return bool(total)


if __name__ == "__main__":
    sys.exit(main())
