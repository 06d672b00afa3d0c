"""Hints name commands that exist: the real parser takes what the sources tell people to type."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl import cli
from fleetctl.args import IDS, UsageError
from fleetctl.parser import CommandParser
from fleetd.domain.core.ids import missing
from fleetd.protocol.types import ID_PREFIXES

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fleetd", "fleetctl")
# Where a text tells of the program and of no command: "fleetctl speaks protocol 1".
PROSE = {
    *("as", "does", "is", "itself", "of", "on", "speaks", "with", "and", "or", "in", "to", "has"),
    *("needs", "knows", "fleet", "was", "which"),
}
VALUE = "\0"
_WORDS = re.compile(r"\bfleetctl((?:[ \n]+[^\s]+)*)")
_ARGUMENT = re.compile(r"-{1,2}[a-z].*|[A-Z][A-Z_]*|<.*>|.*\0.*|-")
_END = (".", ",", ";", ":", ")", "'", '"', "`", "?")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module but its docstrings; what is put into one is ``VALUE``."""
    tree = ast.parse(path.read_text("utf-8"))
    passed_over = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # docstrings
            passed_over.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            passed_over |= {id(each) for each in node.values}
        if id(node) in passed_over:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (e.value if isinstance(e, ast.Constant) else VALUE for e in node.values)
            yield node.lineno, "".join(map(str, parts))


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a text, up to where prose goes on."""
    for line in text.splitlines():
        for found in re.split(r"\bfleetctl(?= )", line)[1:]:
            words = []
            for word in found.split():
                bare = word.rstrip("".join(_END)) if word != VALUE else word
                words.append(bare.strip("'\"`("))
                if bare != word or not bare:
                    break
            if words and words[0] and words[0] not in PROSE:
                yield words


def told() -> list[tuple[str, list[str]]]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for number, text in texts(path):
                where = f"{path.relative_to(ROOT)}:{number}"
                found += [(where, words) for words in commands(text)]
    return found


# Made of parts, which the test below this one looks at whole.
MADE = {
    "fleetd/domain/core/ids.py",
    "fleetctl/cli.py",
    "fleetctl/args.py",
    "fleetctl/commands/daemon.py",
    "fleetctl/commands/version.py",
    "fleetctl/demo/tour.py",
}


def commands_of(parser: CommandParser) -> dict[str, CommandParser]:
    """Return the commands below one."""
    group = parser._subparsers
    return dict(group._group_actions[0].choices or {}) if group else {}  # type: ignore[call-overload]


def trouble(parser: CommandParser, words: list[str]) -> str:
    """Parse words as far as they are a command line; return what is wrong with them."""
    taken: list[str] = []
    here = parser
    if words[0] == "--version":
        return ""
    for word in words:
        below = commands_of(here)
        if word in below:
            here = below[word]
        elif below and not here.get_default("run"):
            return f"{word!r} is no command of {here.prog}"
        elif not _ARGUMENT.fullmatch(word):
            break
        taken.append(word.replace(VALUE, "msn-1a2b3c4d"))
    options = [word.partition("=")[0] for word in taken if word.startswith("--")]
    known = here._option_string_actions
    if wrong := [each for each in options if each not in known]:
        return f"{here.prog} has no {wrong[0]}"
    try:
        parser.parse_args(taken)
    except UsageError as error:
        if "required" not in error.message and "expected" not in error.message:
            return error.message
    except SystemExit:
        pass
    return ""


def test_hints_name_commands_that_exist() -> None:
    parser, found = cli.full_parser(), told()
    assert len(found) > 200
    wrong = [
        (where, words, why)
        for where, words in found
        if (why := trouble(parser, words))
        and not (where.partition(":")[0] in MADE and VALUE in words)
    ]
    assert wrong == []


def test_hints_that_are_made_of_parts_name_commands_that_exist() -> None:
    parser = cli.full_parser()
    made = [missing(noun, f"{noun}-1").hint for noun in (*ID_PREFIXES, "snapshot", "agent")]
    made += [f"fleetctl {noun} list shows" for noun in cli.LISTS.values()]
    made += IDS.values()
    found = [words for text in made for words in commands(text)]
    assert len(found) == len(made)
    assert [why for words in found if (why := trouble(parser, words))] == []


@pytest.mark.parametrize(
    "text",
    [
        "fleetctl missions list shows them",
        "Do: fleetctl mission begin ID",
        "fleetctl resume --back",
        "fleetctl --wait-ms",
        "fleetctl agent start NAME --missions ID",
    ],
)
def test_a_command_that_there_is_not_is_found(text: str) -> None:
    (words,) = commands(text)
    assert trouble(cli.full_parser(), words)
