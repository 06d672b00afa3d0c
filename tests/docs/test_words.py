"""What the prose of the docs names is there: commands, options, targets, files, anchors."""

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from fleetctl.args import UsageError
from fleetctl.cli import COMMANDS, SPELLINGS, build_parser
from fleetd.protocol.methods import METHODS

from .pages import PAGES, ROOT, anchors, blocks, links, name, spans

PROGRAMS = ("fleetctl", "fleet", "fleetd")
# What stands for something else: ID, <id>, msn-…, [more], a|b, 'text'.
PLACEHOLDER = re.compile(r"[A-Z<>\[\]|…]|\.\.\.|/")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
METHOD = re.compile(
    r"^(?:system|mission|sortie|agent|lock|message|event|checkpoint|snapshot|"
    r"recovery|hook|rpc)\.[a-z_]+$"
)
# Options of other programs, which the text says with their names.
FOREIGN = {
    "--enforce-locks",  # of the hook, which fleetctl hooks install writes
    *("--continue", "--permission-prompt-tool", "--prompt", "--resume", "--user"),
    "--token …",  # an example of what the redactor recognises
}


@cache
def explained() -> str:
    """Return the page whose tables begin with messages."""
    return (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")


SPANS = [
    pytest.param(text, id=f"{name(page)}:{line}")
    for page in PAGES
    for line, text in spans(page)
    if text.split()[0] in PROGRAMS
    and f"| `{text}` |" not in explained()  # a message
    and not text.endswith("whole process")  # a measurement's name
]


def actions(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands below a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a command and of all below it."""
    own = {each for action in parser._actions for each in action.option_strings}
    return own.union(*(options(below) for below in actions(parser).values()))


@cache
def known_options() -> frozenset[str]:
    """Return every option of every command."""
    return frozenset().union(*(options(build_parser([command])) for command in COMMANDS))


def readings(text: str) -> Iterator[list[str]]:
    """Yield the command lines that a span stands for: ``a|b`` and ``[more]`` are both meant."""
    words = shlex.split(re.sub(r"[\[\]]", "", text.split(" 2>&1")[0]))[1:]
    choices = words[1].split("|") if len(words) > 1 else [""]
    for choice in choices:
        yield [*words[:1], *([choice] if choice else []), *words[2:]]


def walked(words: list[str]) -> None:
    """Follow a command line through the parsers; what is an option must be one there."""
    parser, rest = build_parser(words), iter(words)
    for word in rest:
        below = actions(parser)
        if word.startswith("-"):
            option, given, _ = word.partition("=")
            assert option in options(parser), f"{word} is no option of {words}"
            own = parser._option_string_actions.get(option)
            if below and not given and own is not None and own.nargs != 0:
                next(rest, "")  # its value, and no command
        elif below:
            assert word in below or PLACEHOLDER.search(word), f"{word} is no command of {words}"
            parser = below.get(word, parser)  # type: ignore[assignment]


@pytest.mark.parametrize("text", SPANS)
def test_a_command_in_the_prose_is_one(text: str) -> None:
    program = text.split()[0]
    for words in readings(text):
        if program == "fleetd":
            assert words in (["--version"], ["--help"]) or not "".join(words).startswith("--")
            continue
        walked(words)
        if not any(PLACEHOLDER.search(word) for word in words):
            _parsed(words)


def _parsed(words: list[str]) -> None:
    """Parse a command line that is written out; only what it needs may be missing."""
    try:
        build_parser(words).parse_args(words)
    except SystemExit:  # --help
        return
    except UsageError as error:
        if "required" not in error.message:
            pytest.fail(error.message, pytrace=False)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_and_methods_named_alone_are_there(page: Path) -> None:
    others = _options_of_others()
    for line, text in spans(page):
        if text.startswith("--") and text not in FOREIGN:
            option = OPTION.match(text)
            assert option, f"{line}: {text}"
            assert option[0] in known_options() | others | FOREIGN, f"{name(page)}:{line}: {text}"
        if METHOD.match(text) and "." in text and not text.endswith((".py", ".json", ".md")):
            assert text in METHODS, f"{name(page)}:{line}: no method {text}"


@cache
def _options_of_others() -> frozenset[str]:
    """Return the options of campaigns, benchmarks and scripts of this checkout."""
    found: set[str] = set()
    for folder in ("tests/chaos", "benchmarks"):
        for file in (ROOT / folder).rglob("*.py"):
            found.update(re.findall(r"[\"'](--[a-z-]+)[\"']", file.read_text("utf-8")))
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_targets_of_make_are_there(page: Path) -> None:
    said = [text for _, text in spans(page)]
    said += [line for block in blocks(page) for line in block.text.splitlines()]
    for text in said:
        for target in re.findall(r"^(?:\$ )?make (?:-s )?([a-z-]+)", text):
            assert target in TARGETS, f"{name(page)}: make {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_of_blocks_that_do_not_run_are_commands(page: Path) -> None:
    for block in blocks(page):
        for line in block.text.splitlines() if block.not_run else ():
            said = re.sub(r"^\$ ", "", line).split("#")[0].strip()
            if said.split()[:1] and said.split()[0] in PROGRAMS:
                walked(shlex.split(said.split("|")[0].split("2>")[0])[1:])


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{name(page)}: {link}"


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - SPELLINGS.keys()))
def test_every_command_is_told_of_where_a_person_reads(command: str) -> None:
    written = [page for page in PAGES if "Written by make generate" not in page.read_text("utf-8")]
    said = re.compile(rf"\bfleetctl {command}\b(?!-)")
    assert [name(page) for page in written if said.search(page.read_text("utf-8"))]


def test_there_is_one_index_of_all_pages() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    missing = [page for page in PAGES if page not in linked and page.parent == index.parent]
    assert [name(page) for page in missing if page != index] == []


CODE_PAGES = [ROOT / "docs" / "architecture.md", ROOT / "docs" / "internals.md"]
MODULE = re.compile(
    r"(?P<path>[a-z_]+(?:/[a-z_]+)+/?)(?P<suffix>\.(?:py|js|md|c))?(?:\.(?P<name>\w+))?"
)
TREES = ("", "fleetd", "fleetctl", "fleetd/domain", "fleetd/engine")


def found(path: str, suffix: str) -> list[Path]:
    """Return the modules or packages that a path means, in the tree or in one of its rooms."""
    places = [ROOT / tree / path for tree in TREES]
    if suffix:
        return [each for place in places if (each := place.with_suffix(suffix)).is_file()]
    files = [place.with_suffix(".py") for place in places]
    return [each for each in (*files, *places) if each.exists()]


@pytest.mark.parametrize("page", CODE_PAGES, ids=name)
def test_modules_that_a_page_names_are_there(page: Path) -> None:
    for line, text in spans(page):
        named = MODULE.fullmatch(text)
        if named is None:
            continue
        modules = found(named["path"], named["suffix"] or "")
        assert modules, f"{name(page)}:{line}: no module {text}"
        if named["name"]:
            text_of = "".join(each.read_text("utf-8") for each in modules if each.is_file())
            assert re.search(rf"^(?:async )?(?:def |class )?{named['name']}\b", text_of, re.M), (
                f"{name(page)}:{line}: no {text}"
            )
