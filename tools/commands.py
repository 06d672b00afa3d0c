"""docs/commands.md: every command by group, with options and examples, from their parsers."""

import argparse
import re
from collections.abc import Iterator

from fleetctl.cli import GROUPS, HIDDEN, SPELLINGS, full_parser

from .reference import NOTE

PAGE = "docs/commands.md"
INTRODUCTION = """\
Everything that `fleetctl` can do, as `--help` and the man pages say it. Wherever an id is expected,
a unique prefix with at least four hex digits does as well. Agent names are given in full. `fleet`
is another name of `fleetctl`.

Every command but `watch` takes `--json` and then prints exactly one JSON document, with `--follow`
one per line; `--exact` prints on a terminal what is printed elsewhere, with whole times and nothing
cut.

Exit status: 0 done, 1 failed, 2 usage, 3 cancelled, 4 not found."""
EVERYWHERE = {"help", "json", "exact"}


def files() -> dict[str, str]:
    """Return the page by its path."""
    commands = _below(full_parser())
    called = {name: what for name, what in HIDDEN.items() if name not in SPELLINGS}
    groups = GROUPS | {"for programs": called}
    parts = ["# The commands", INTRODUCTION]
    for group, listed in groups.items():
        rows = [f"| [`{name}`](#fleetctl-{name}) | {what} |" for name, what in listed.items()]
        parts.append("\n".join([f"| **{group}** | |", "|---|---|", *rows]))
    for listed in groups.values():
        for name in listed:
            parts.append(f"## fleetctl {name}")
            parts += _sections(commands[name], f"fleetctl {name}")
    return {PAGE: "\n\n".join([NOTE, *parts]) + "\n"}


def _below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _sections(parser: argparse.ArgumentParser, called: str) -> Iterator[str]:
    yield str(parser.description or "")
    below = _below(parser)
    if not below or parser.get_default("run"):  # it runs by itself, with or without subcommands
        yield from _command(parser, called)
    for other in (other for other, name in SPELLINGS.items() if called == f"fleetctl {name}"):
        yield f"`fleetctl {other}` is another spelling of `{called}` for the commands below."
    for name, inner in below.items():
        yield f"### {called} {name}"
        yield from _sections(inner, f"{called} {name}")


def _command(parser: argparse.ArgumentParser, called: str) -> Iterator[str]:
    shown = [each for each in parser._actions if _is_shown(each)]  # noqa: SLF001
    options = [each for each in shown if each.option_strings and each.dest not in EVERYWHERE]
    words = [_word(each) for each in shown if not each.option_strings]
    usage = " ".join([called, *words, *(["[options]"] if options else [])])
    yield f"```text\n{usage}\n```"
    rows = [f"| {_names(each)} | {_help(each)} |" for each in shown if each.dest not in EVERYWHERE]
    if rows:
        yield "\n".join(["| | |", "|---|---|", *rows])
    epilog = re.sub(r"\\\n +", "", str(parser.epilog or ""))
    if examples := re.findall(r"^  (fleetctl .*)$", epilog, re.MULTILINE):
        # Text after the command, separated by several spaces, is a comment.
        yield "\n".join(f"- `{re.split('  +', each)[0]}`" for each in examples)


def _is_shown(action: argparse.Action) -> bool:
    # The subcommands have sections of their own.
    below = isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    return action.help != argparse.SUPPRESS and not below


def _word(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest.upper())
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ..."}.get(str(action.nargs), name)


def _names(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    if action.choices and not action.metavar:
        value = " " + "|".join(map(str, action.choices))
    if not action.option_strings:
        return f"`{_word(action)}`"
    return ", ".join(f"`{option}{value}`".replace("|", "\\|") for option in action.option_strings)


def _help(action: argparse.Action) -> str:
    return str(action.help or "").replace("|", "\\|").replace("%%", "%").replace("<", "\\<")
