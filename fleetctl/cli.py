"""The command line: from arguments to an exit status.

It imports only the module of the named command, and only what that command needs.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from fleetd import __version__
from fleetd.protocol.errors import (
    AtomicWriteFailed,
    FleetError,
    IntegrityMismatch,
    MethodNotFound,
    RetentionPruneFailed,
    SchemaInvalid,
)

from .args import Namespace, NotPlain, PlainParser, UsageError
from .output import console
from .prompts import Cancelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from .args import CommandParser

# The commands by group; ``fleetctl --help`` shows the groups of DAILY, ``help --all`` all of them.
GROUPS = {
    "everyday": {
        "status": "show agents and missions, and what waits for you",
        "watch": "show the same live in the terminal",
        "web": "show the fleet in a browser",
        "attention": "show the agents that need you, and how to get there",
        "notify": "tell you when an agent needs you",
        "usage": "show the tokens that agents took, and what they cost",
        "conflicts": "show the files that several agents changed within the last hour",
        "events": "show past events, or follow new events",
        "search": "find what agents were asked, said, ran and noted",
        "context": "show a mission's briefing, and change nothing",
        "report": "report what an agent or a mission did, as Markdown or HTML",
        "export": "export missions as traces for OpenTelemetry",
        "checkpoint": "take, list, compare, prune and verify checkpoints",
        "resume": "recover a mission from a checkpoint",
        "reopen": "open sessions again that ended, as after a reboot",
        "handoff": "give an agent's work to a new session of another agent CLI",
        "doctor": "find damage and wrong permissions, and repair them",
    },
    "missions": {
        "mission": "create, start and end missions",
        "sortie": "add, assign and complete the pieces of a mission",
        "note": "keep decisions, constraints and what is ruled out",
    },
    "agents": {
        "agent": "register agents, and list the agents at work",
        "lock": "lock files for one agent",
        "guard": "keep agents from committing each other's files",
        "mail": "send messages between agents",
    },
    "setup": {
        "daemon": "install, start and stop fleetd",
        "hooks": "connect agent CLIs to fleetd",
        "mcp": "give agents tools to report, lock and write",
    },
    "recovery": {
        "stats": "compare what agents did after compactions",
        "snapshot": "record, list, show, verify and prune snapshots of runs",
        "backup": "copy the database while it is in use",
        "restore": "replace the database with a backup",
        "forget": "delete everything about a mission, session or project",
    },
    "administration": {
        "config": "show the settings in force and their sources",
        "metrics": "print metrics for Prometheus",
        "machines": "list the machines that share a store, and forget one",
        "migrate": "move the store between SQLite and PostgreSQL",
        "completions": "print or install completions for bash or zsh",
        "uninstall": "remove fleetd's service, hooks and servers",
    },
    "developers": {
        "call": "call any method of the daemon",
        "demo": "run a guided tour in a temporary directory",
    },
    "help": {
        "help": "explain a command",
        "version": "print the version",
    },
}
DAILY = ("everyday", "missions", "agents", "setup")
# Another spelling of a group of commands: scripts use it, and no list shows it.
SPELLINGS = {"checkpoints": "checkpoint"}
# Only programs call ``hook``.
HIDDEN = {
    "hook": "receive an event from an agent CLI",
    **{other: f"the commands below fleetctl {name}" for other, name in SPELLINGS.items()},
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()} | HIDDEN
# Commands that people know from other programs, and what to use here instead.
INSTEAD = {
    "undo": "every recovery takes an undo checkpoint first, and names it. To go back: fleetctl "
    "resume --checkpoint ID --rewind (fleetctl checkpoint list shows the ids)",
    "ps": "fleetctl status shows agents and missions, fleetctl agent list all agents",
    "log": "fleetctl events shows the events of agents, fleetctl daemon logs the log of fleetd",
    "logs": "fleetctl events shows the events of agents, fleetctl daemon logs the log of fleetd",
}
EXAMPLES = """\
examples:
  fleetctl mission create "Add login" --sortie "Write the form" --sortie "Test"
  fleetctl mission start
  fleetctl checkpoint --note "Before the refactoring"
  fleetctl resume --dry-run

Exit status: 0 done, 1 failed, 2 usage, 3 cancelled, 4 not found.
"""
SUMMARY = "Show and control the agents that fleetd remembers."
FOOTER = (
    "fleetctl help --all lists all commands, fleetctl help COMMAND explains one.",
    "Exit status: 0 done, 1 failed, 2 usage, 3 cancelled, 4 not found.",
)
# The list that shows the ids for a parameter.
LISTS = {
    **{f"{noun}_id": noun for noun in ("mission", "sortie", "agent", "lock", "snapshot")},
    **dict.fromkeys(("checkpoint_id", "before", "after"), "checkpoint"),
    "message_id": "mail",
    "note_id": "note",
}
# Their kinds are the reason codes of the snapshot lifecycle: scripts and people look for them.
WITH_REASON_CODE = (SchemaInvalid, IntegrityMismatch, AtomicWriteFailed, RetentionPruneFailed)
COMMON = ("--json", "--exact")
FAILED = 1
INTERRUPTED = 130
BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = _move_common_options_last(list(sys.argv[1:] if argv is None else argv))
    _escape_unencodable()
    try:
        _refuse_undecodable(arguments)
        status = _run(arguments)
        sys.stdout.flush()
    except FleetError as error:
        return _report(error, as_json="--json" in arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _redirect_to_null()  # the reader has enough
        return BROKEN_PIPE
    except OSError as error:
        # The daemon has done its work; only the report could not be written.
        _redirect_to_null()
        print(f"Error: The output cannot be written: {error.strerror}.", file=sys.stderr)
        return FAILED
    return status


def _redirect_to_null() -> None:
    """Redirect stdout, which the interpreter flushes once more at its end, to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse_undecodable(arguments: Sequence[str]) -> None:
    """Refuse bytes that are not UTF-8: nothing else can be stored or sent."""
    for argument in arguments:
        if not argument.isascii() and argument.encode(errors="replace").decode() != argument:
            raise UsageError(f"The argument {argument!a} is not valid UTF-8.")


def _move_common_options_last(arguments: list[str]) -> list[str]:
    """Accept ``--json`` and ``--exact`` before the command as well as after it."""
    first = next((n for n, each in enumerate(arguments) if each not in COMMON), len(arguments))
    return [*arguments[first:], *arguments[:first]]


def _run(arguments: list[str]) -> int:
    try:
        args = parsed(arguments)
    except SystemExit as leaving:
        # --help and --version print and leave; main() returns instead.
        return int(leaving.code or 0)
    console.set_exact(getattr(args, "exact", False))
    return int(args.run(args))


def parsed(arguments: list[str]) -> Namespace:
    """Return the parsed arguments; raises UsageError, and SystemExit after ``--help``."""
    try:
        return parsed_plain(arguments)
    except NotPlain:
        pass
    from .parser import without_translation

    with without_translation():
        parser = build_parser(arguments)
        args, unknown = parser.parse_known_args(arguments, Namespace())
        if unknown:
            getattr(args, "parser", parser).reject_unknown(unknown)
    return args


def parsed_plain(arguments: list[str]) -> Namespace:
    """Return the parsed names of commands and flags; raises NotPlain for anything else."""
    parser = PlainParser()
    if not arguments or arguments[0] not in COMMANDS:
        raise NotPlain
    _command(arguments[0]).register(parser.commands("command"))
    return parser.parse(arguments)


def _command(name: str) -> Any:
    """Return the module of a command."""
    module = f"{__package__}.commands.{name}"
    __import__(module)  # importlib takes longer to import than a command
    return sys.modules[module]


def build_parser(arguments: Sequence[str]) -> CommandParser:
    """Return the parser for these arguments, with the options of the command they name."""
    program = sys.argv[0].rpartition("/")[2]
    parser = _parser(program if program in ("fleetctl", "fleet") else "fleetctl")
    subparsers = parser.commands("command")
    named = next((word for word in arguments if not word.startswith("-")), "")
    if named in INSTEAD:
        raise UsageError(f"There is no command {named!r}: {INSTEAD[named]}.")
    for name in [named] if named in COMMANDS else COMMANDS:
        if name == named:
            _command(name).register(subparsers)
        else:
            subparsers.add_parser(name, help=COMMANDS[name])
    return parser


def full_parser(prog: str = "fleetctl") -> CommandParser:
    """Return the parser with the options of every command, from which pages are generated."""
    parser = _parser(prog)
    subparsers = parser.commands("command")
    for name in COMMANDS:
        _command(name).register(subparsers)
    return parser


def overview(prog: str, groups: Iterable[str] = GROUPS) -> str:
    """Return the commands of some groups with their summaries, a line each."""
    lines = [f"usage: {prog} COMMAND ...", "", SUMMARY]
    for group in groups:
        lines += ["", f"{group}:"]
        lines += [f"  {name:<12} {text}" for name, text in GROUPS[group].items()]
    return "\n".join([*lines, "", *FOOTER, ""])


def _parser(prog: str) -> CommandParser:
    from .parser import CommandParser

    parser = CommandParser(
        prog=prog,
        description=SUMMARY,
        epilog=EXAMPLES,
        overview=lambda: overview(prog, DAILY),
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def _report(error: FleetError, *, as_json: bool) -> int:
    if as_json:
        document = {"code": error.code, "message": error.message, **error.data()}
        print(console.to_json({"error": document}), file=sys.stderr)
    elif isinstance(error, Cancelled):
        console.line(error.message)
    else:
        _report_text(error)
    return error.exit_status


def _report_text(error: FleetError) -> None:
    message = console.clean(error.message).removeprefix("Invalid params: ")
    if isinstance(error, MethodNotFound):
        message = f"{message}: {error.values.get('method')}"
    if isinstance(error, WITH_REASON_CODE):
        message = f"{message} [{error.kind}]"
    console.print_error("Error:", message, "red")
    for candidate in error.values.get("candidates") or ():
        known = candidate.values() if isinstance(candidate, dict) else (candidate,)
        shown = [str(each) for each in known if each is not None]
        console.print_stderr("  " + "  ".join(shown))
    if isinstance(error, UsageError) and error.usage:
        print(error.usage, file=sys.stderr)
    elif error.hint and not error.hint.startswith("rpc.discover"):
        console.print_error("Hint:", console.clean(error.hint))
    elif noun := LISTS.get(str(error.values.get("field"))):
        console.print_error("Hint:", f"fleetctl {noun} list shows the ids.")


def _escape_unencodable() -> None:
    """Escape characters that the terminal's encoding lacks, instead of ending in a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
