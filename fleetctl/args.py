"""Command-line arguments: what commands take, and the options that they share.

Nearly all of a command's time is imports, and argparse takes the longest of them. ``PlainParser``
reads command lines of names and flags only, ``parser`` reads everything else.
"""

from __future__ import annotations

import os

from fleetd.protocol.errors import InvalidParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from .parser import CommandParser as CommandParser
    from .parser import Subparsers as Subparsers

    Run: TypeAlias = Callable[["Namespace"], int]
else:
    # Only annotations use these names.
    CommandParser = Subparsers = Run = object

COMMAND = "COMMAND"
# The help of an argument that is an id, unless it has another.
IDS = {
    **{
        noun: f"the {noun}'s id, or its beginning such as {beginning}: fleetctl {command} list"
        for noun, beginning, command in (
            ("mission", "msn-8e7e", "mission"),
            ("sortie", "srt-8e7e", "sortie"),
            ("lock", "lck-8e7e", "lock"),
            ("note", "nte-8e7e", "note"),
            ("checkpoint", "chk-8e7e", "checkpoint"),
            ("message", "msg-8e7e", "mail"),
        )
    },
    "snapshot": "the snapshot's id: fleetctl snapshot list",
    "agent": "the agent's name, such as alice: fleetctl agent list",
}
# The value with which argparse hides a help text.
SUPPRESS = "==SUPPRESS=="
_AGE = r"([0-9]{1,6})(s|m|h|d)"
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Namespace:
    """The parsed command line, with an attribute for each argument."""

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class NotPlain(Exception):
    """The command line has more than names and flags, or lacks what its command needs."""


class PlainParser:
    """A parser of names and flags; raises NotPlain for anything that needs argparse.

    Commands add their arguments to either parser, and both give the same result.
    """

    def __init__(self) -> None:
        self._plain = True
        self._values: dict[str, Any] = {}
        self._flags: dict[str, str] = {}
        self._below: dict[str, PlainParser] = {}
        self._below_is = ""
        self._below_required = False

    def add_argument(
        self,
        *names: str,
        action: str = "store",
        default: Any = None,
        dest: str = "",
        nargs: Any = None,
        required: bool = False,
        type: Any = None,  # noqa: A002 - argparse's word for it
        **_: Any,
    ) -> PlainParser:
        """Add an argument: a flag, or an option that a plain command line omits."""
        option = names[0].startswith("-")
        if not dest:
            long = next((name for name in names if name.startswith("--")), names[0])
            dest = long.lstrip("-").replace("-", "_") if option else names[0]
        if action == "store_true" and default is None:
            self._flags |= dict.fromkeys(names, dest)
            default = False
        elif (
            action not in ("store", "append")
            or required
            or not (option or nargs == "?")
            or (isinstance(default, str) and (type is not None or default == SUPPRESS))
        ):
            self._plain = False
        self._values.setdefault(dest, default)
        return self

    def flag(self, *names: str, help: str) -> None:  # noqa: A002, ARG002 - as above
        """Add an option without a value."""
        self.add_argument(*names, action="store_true")

    def set_defaults(self, **values: Any) -> None:
        """Set values that no argument gives."""
        self._values |= values

    def add_mutually_exclusive_group(self, **_: Any) -> PlainParser:
        """Add arguments that exclude each other, which only argparse can check."""
        self._plain = False
        return self

    def commands(self, dest: str) -> PlainParser:
        """Return the place to add commands, of which one must be named."""
        self._below_required = True
        return self.optional_commands(dest)

    def optional_commands(self, dest: str) -> PlainParser:
        """Return the place to add commands below one that also runs without them."""
        self._below_is = dest
        self._values.setdefault(dest, None)
        return self

    def add_parser(self, name: str, **_: Any) -> PlainParser:
        """Add a command and return its parser."""
        self._below[name] = parser = PlainParser()
        return parser

    def parse(self, arguments: list[str], found: Namespace | None = None) -> Namespace:
        """Return the arguments of a plain command line; raises NotPlain."""
        found = found or Namespace()
        found.__dict__ |= self._values
        for number, word in enumerate(arguments):
            if word in self._flags:
                setattr(found, self._flags[word], True)
            elif word in self._below and number == 0 and self._plain:
                setattr(found, self._below_is, word)
                return self._below[word].parse(arguments[1:], found)
            else:
                raise NotPlain
        if not self._plain or self._below_required:
            raise NotPlain
        return found


class UsageError(InvalidParams):
    """The command line is wrong; ``usage`` shows the right one."""

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message, hint="Add --help to see the options.")
        self.usage = usage


def with_completion(action: argparse.Action, completes: str | None) -> argparse.Action:
    """Mark what a shell completes an argument with, and return the argument.

    Ids are named by their kind (``mission``) or by the subset that a command can act on
    (``mission.open``): completing/candidates knows them all. An argument that takes no id is
    completed by its metavar: FILE, DIR, HARNESS. An ID without a mark fails a test.
    """
    action.completes = completes  # type: ignore[attr-defined]
    return action


def command(
    subparsers: Subparsers,
    name: str,
    run: Run,
    summary: str,
    examples: str = "",
    *,
    prints: bool = True,
    details: str = "",
    follows: bool = False,
) -> CommandParser:
    """Add a command that ends in ``run``; all that print take ``--json`` and ``--exact``.

    A command that does not print accepts them too, and reports what to do instead. ``details``
    follow the summary in the command's own help. A command that ``follows`` prints a document for
    each event.
    """
    epilog = f"examples:\n{examples}" if examples else None
    description = f"{summary} {details}".rstrip()
    parser = subparsers.add_parser(name, help=summary, description=description, epilog=epilog)
    following = "; with --follow one document per line" if follows else ""
    shared = (
        ("--json", f"print exactly one JSON document{following}"),
        ("--exact", "on a terminal too: times in ISO 8601, nothing cut"),
    )
    for option, meaning in shared:
        shown = meaning if prints else SUPPRESS
        parser.add_argument(option, action="store_true", help=shown)
    parser.set_defaults(run=run, parser=parser)
    return parser


def group(subparsers: Subparsers, name: str, summary: str) -> Subparsers:
    """Add a group of commands and return the place to add them."""
    parser = subparsers.add_parser(name, help=summary, description=summary)
    return parser.commands("action")


def whole_number(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return a converter for whole numbers within bounds."""
    bounds = f"{minimum} or more" if maximum is None else f"{minimum} to {maximum}"

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum or (maximum is not None and value > maximum):
            raise bad_value(f"expected a whole number, {bounds}; got {text!r}")
        return value

    return convert


def bad_value(message: str) -> Exception:
    """Return the error that argparse expects for a wrong value."""
    from argparse import ArgumentTypeError

    return ArgumentTypeError(message)


def age(text: str) -> int:
    """Return an age such as ``90s``, ``30m``, ``2h`` or ``3d`` in ms; raises ArgumentTypeError."""
    import re

    if (found := re.fullmatch(_AGE, text)) is None:
        raise bad_value(f"expected an age such as 30m, 2h or 3d; got {text!r}")
    return int(found[1]) * _UNITS[found[2]]


HERE = "the one of this directory, else the only one in progress"


def mission_option(parser: CommandParser, default: str = HERE) -> None:
    """Add ``--mission``."""
    parser.add_argument(
        "--mission", metavar="ID", completes="mission", help=f"the mission (default: {default})"
    )


def limit_option(parser: CommandParser, default: int) -> None:
    """Add ``--limit``."""
    parser.add_argument(
        "--limit",
        type=whole_number(1, 1_000),
        default=default,
        metavar="N",
        help=f"show at most N (default: {default})",
    )


def agent_option(parser: CommandParser, meaning: str) -> None:
    """Add ``--agent`` to a list."""
    parser.add_argument("--agent", completes="agent", help=meaning)


def since_option(parser: CommandParser, meaning: str) -> None:
    """Add ``--since`` to a list, whose records have a time."""
    parser.add_argument(
        "--since", type=age, metavar="AGE", help=f"{meaning} in the last 90s, 30m, 2h or 3d"
    )


def yes_option(parser: CommandParser) -> None:
    """Add ``-y``."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def changing_options(parser: CommandParser) -> None:
    """Add ``--dry-run`` and ``-y``, for a command that changes files of the user."""
    parser.flag("--dry-run", help="show the changes, and write nothing")
    yes_option(parser)


def threshold_ms() -> int | None:
    """Return the shell's silence threshold in ms, or None when it sets none.

    A daemon that runs as a service does not see a variable of the shell, so it is sent along.
    """
    text = os.environ.get("FLEET_ACTIVITY_THRESHOLD_MS")
    if not text:
        return None
    from argparse import ArgumentTypeError

    try:
        return whole_number(1, 30 * 86_400_000)(text)
    except ArgumentTypeError as error:
        raise UsageError(f"FLEET_ACTIVITY_THRESHOLD_MS: {error}") from None
