"""Command lines of names and flags, which argparse does not read: they come to the same."""

import argparse
import itertools
from collections.abc import Iterator

import pytest

from fleetctl import cli
from fleetctl.args import SUPPRESS, NotPlain
from fleetctl.parser import CommandParser

NOT_PLAIN = [
    [],
    ["nothing"],
    ["--version"],
    ["status", "--help"],
    ["status", "-h"],
    ["status", "--jso"],
    ["status", "-vv"],
    ["status", "--json=1"],
    ["status", "--"],
    ["status", ""],
    ["status", "extra"],
    ["mission"],
    ["mission", "show", "msn-1", "extra"],
    ["mission", "list", "--limit", "5"],
    ["checkpoint", "--json", "list"],
    ["checkpoint", "show"],
    ["hook", "claude"],
]


def leaves(parser: CommandParser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command that there is, as words."""
    places = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    yield words
    for place in places:
        for name, below in place.choices.items():
            yield from leaves(below, (*words, name))


def flags(parser: CommandParser, words: tuple[str, ...]) -> list[str]:
    """Return the options of a command."""
    for word in words:
        parser = parser.subcommand(word)
    return [option for action in parser._actions for option in action.option_strings]


def both(arguments: list[str]) -> tuple[dict[str, object], dict[str, object]]:
    plain = vars(cli.parsed_plain(arguments))
    whole = vars(cli.build_parser(arguments).parse_args(arguments))
    return plain, whole


FULL = cli.full_parser()
COMMANDS = [words for words in leaves(FULL) if words]


def test_most_commands_without_arguments_are_plain() -> None:
    plain = []
    for words in COMMANDS:
        try:
            plain.append(" ".join(words))
            cli.parsed_plain([*words])
        except NotPlain:
            plain.pop()
    assert {"status", "mission list", "agent list", "lock list", "version", "checkpoint"} <= {
        *plain
    }


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_is_plain_comes_to_the_same_as_by_argparse(words: tuple[str, ...]) -> None:
    options = flags(FULL, words)
    given = [(), *((each,) for each in options), *itertools.pairwise(options)]
    for more in given:
        arguments = [*words, *more]
        try:
            plain, whole = both(arguments)
        except NotPlain:
            continue
        for found in (plain, whole):
            found.pop("parser", None)
            # Made anew at each registration, of the same function.
            run = found.pop("run")
            found["run"] = getattr(run, "__qualname__", repr(type(run)))
        assert plain == whole, arguments


@pytest.mark.parametrize("arguments", NOT_PLAIN, ids=" ".join)
def test_what_is_not_plain_is_left_to_argparse(arguments: list[str]) -> None:
    with pytest.raises(NotPlain):
        cli.parsed_plain(arguments)


def test_a_hidden_help_is_called_as_argparse_calls_it() -> None:
    assert SUPPRESS == argparse.SUPPRESS
