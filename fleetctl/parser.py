"""The parser of command lines that argparse reads: help, completions, usage errors.

argparse exits the process on a wrong option. This parser raises instead, so that one place decides
how errors look and what they return.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

from .args import COMMAND, IDS, SUPPRESS, UsageError, with_completion

# A string, because argparse's class takes no argument at run time, and has no public name.
Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"  # noqa: SLF001
# Choices with more letters than this are left out of the usage line.
MOST_CHOICES = 30


def _same_text(text: Any) -> Any:
    """Return text untranslated, also the None of a group without a description."""
    return text


@contextmanager
def without_translation() -> Iterator[None]:
    """Keep argparse from looking up translations, in eight places for each text.

    The change is temporary, because argparse belongs to the whole process.
    """
    before = argparse._  # type: ignore[attr-defined]
    argparse._ = _same_text  # type: ignore[attr-defined]
    try:
        yield
    finally:
        argparse._ = before  # type: ignore[attr-defined]


class _CheckingFormatter(argparse.RawDescriptionHelpFormatter):
    """The formatter with which argparse checks options; it skips reading the terminal's width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """The formatter for people: as wide as the terminal at most, except for examples to copy.

    The name of a command and its summary share one line.
    """

    def format_help(self) -> str:
        # argparse forgets the indentation of commands when it looks for the longest one.
        self._action_max_length += 2
        return super().format_help()

    def _format_action(self, action: argparse.Action) -> str:
        """Leave out the line above a list of commands, which says COMMAND."""
        text = super()._format_action(action)
        listed = isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - as above
        return text.partition("\n")[2] if listed else text

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap prose; indented lines stay unchanged."""
        from textwrap import fill

        return "\n".join(
            indent + line if line.startswith(" ") else fill(line, width, initial_indent=indent)
            for line in text.splitlines()
        )


class CommandParser(argparse.ArgumentParser):
    """A parser that raises UsageError and takes no abbreviated options.

    ``overview`` makes the help of a parser with more commands than one list can show.
    """

    def __init__(self, overview: Callable[[], str] | None = None, **settings: object) -> None:
        self._overview = overview
        super().__init__(formatter_class=_CheckingFormatter, allow_abbrev=False, **settings)  # type: ignore[arg-type]

    def add_argument(
        self, *names: str, completes: str | None = None, **settings: Any
    ) -> argparse.Action:
        """Add an argument and what a shell completes its value with: see ``with_completion``.

        A completed value is an ID, unless ``metavar`` says otherwise. Many choices are listed in
        the help, because the usage would not wrap them.
        """
        if completes:
            settings = {"metavar": "ID", "type": not_empty, **settings}
            if not names[0].startswith("-"):
                settings.setdefault("help", IDS.get(completes.partition(".")[0]))
        if settings.get("help") == SUPPRESS:
            settings["help"] = argparse.SUPPRESS  # argparse compares it by identity
        choices = settings.get("choices")
        if choices and "metavar" not in settings and sum(map(len, choices)) > MOST_CHOICES:
            settings["metavar"] = names[-1].strip("-").replace("-", "_").upper()
            listed = f"one of {', '.join(choices)}"
            settings["help"] = f"{settings['help']}: {listed}" if settings.get("help") else listed
        return with_completion(super().add_argument(*names, **settings), completes)

    def flag(self, *names: str, help: str) -> None:  # noqa: A002 - argparse's word for it
        """Add an option without a value."""
        self.add_argument(*names, action="store_true", help=help)

    def format_help(self) -> str:
        """Return the help, as wide as the terminal."""
        if self._overview is not None:
            return self._overview()
        self.formatter_class = _HelpFormatter
        return super().format_help()

    def format_usage(self) -> str:
        """Return the usage, as wide as the terminal."""
        self.formatter_class = _HelpFormatter
        return super().format_usage()

    def commands(self, dest: str) -> Subparsers:
        """Return the place to add commands, which the help shows before the options."""
        # With prog given, argparse formats no usage line, which imports what only help needs.
        place: Subparsers = self.add_subparsers(
            title="commands", dest=dest, metavar=COMMAND, required=True, prog=self.prog
        )
        self._action_groups.insert(0, self._action_groups.pop())
        return place

    def optional_commands(self, dest: str) -> Subparsers:
        """Return the place to add commands below one that also runs without them."""
        place: Subparsers = self.add_subparsers(
            title="commands", dest=dest, metavar=COMMAND, prog=self.prog, action=_Below
        )
        return place

    def subcommand(self, name: str) -> "CommandParser":
        """Return the parser of a command below this one; raises UsageError where there is none."""
        places = (each for each in self._actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001
        place = next(places, None)
        if place is None:
            self.error(f"{self.prog} has no commands below it: {name!r}")
        self._check_value(place, name)
        found: CommandParser = place.choices[name]
        return found

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of printing; for a missing command it lists the commands."""
        if message.endswith(f"are required: {COMMAND}"):
            raise UsageError(
                f"{COMMAND} is required: choose one of these.", self.format_help().strip()
            )
        raise UsageError(message, self.format_usage().strip())

    def reject_unknown(self, unknown: Sequence[str]) -> NoReturn:
        """Raise UsageError for unknown arguments, and suggest what may have been meant."""
        options = [each for each in unknown if each.startswith("-")]
        near = did_you_mean(options[0], self._option_string_actions) if options else ""
        shown = " ".join(each or "''" for each in unknown)
        self.error(f"unrecognized arguments: {shown}{near and '.' + near}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown choice, and suggest what may have been meant."""
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        near = did_you_mean(str(value), choices)
        if action.metavar == COMMAND:
            more = near or f" There are: {', '.join(choices)}."
            raise UsageError(
                f"argument {COMMAND}: there is no {value!r}.{more}", self.format_usage().strip()
            )
        message = f"expected one of {', '.join(choices)}; got {value!r}"
        raise argparse.ArgumentError(action, f"{message}.{near}" if near else message)


class _Below(argparse._SubParsersAction):  # type: ignore[type-arg] # noqa: SLF001
    """Commands below one that has options too; refuses options that would have no effect."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        for action in parser._actions:  # noqa: SLF001
            given = getattr(namespace, action.dest, action.default)
            if action.option_strings and given != action.default:
                option = action.option_strings[-1]
                parser.error(f"argument {option}: write it after {values[0]!r}")
        super().__call__(parser, namespace, values, option_string)


# Two words are both suggested if difflib's ratios differ by less than this.
_EQUALLY_CLOSE = 0.1


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` Did you mean status?`` for a word that is close to a known one, else nothing.

    Two known words that are almost equally close are both named.
    """
    # Imported here: only errors need it.
    from difflib import SequenceMatcher, get_close_matches

    found = get_close_matches(word, list(known), n=2)
    if len(found) == 2:
        near, next_near = (SequenceMatcher(None, each, word).ratio() for each in found)
        found = found if near - next_near < _EQUALLY_CLOSE else found[:1]
    return f" Did you mean {' or '.join(found)}?" if found else ""


def not_empty(text: str) -> str:
    """Refuse an empty id: it comes from an unset variable, and does not mean the default."""
    if not text:
        raise argparse.ArgumentTypeError("the value is empty; give one, or leave it out")
    return text
