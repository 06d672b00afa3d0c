"""The completions of fleetctl, fleet and fleetd for bash and zsh, by shtab from their parsers.

shtab walks the options. The completion of a value is set where its option is added. The shell
functions that ask for ids are in files beside this one.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import shtab

from fleetctl.cli import COMMANDS, full_parser
from fleetctl.client.methods import METHODS
from fleetctl.integrations.registry import HARNESSES
from fleetd.__main__ import parser as fleetd_parser
from fleetd.protocol import events

HERE = Path(__file__).resolve().parent
SHARE = "fleetctl/share"
# A value without an id is identified by its metavar.
BY_METAVAR = {
    "FILE": "file",
    "PATH": "file",
    "DIR": "directory",
    "AGENT": "agent",
    "HARNESS": "harness",
    "METHOD": "method",
    "TYPE": "event_type",
    "COMMAND": "command",
}
WORDS = {
    "harness": tuple(HARNESSES),
    "method": tuple(METHODS),
    "event_type": tuple(events.PAYLOADS),
    "command": tuple(COMMANDS),
}
PATHS = {"file": ("default", "_files"), "directory": ("dirnames", "_files -/")}
HEAD = "Written by make generate from the options of {}; do not edit."
BASH_END = """
{function}() {{ _fleetctl_complete {shtab}; }}
complete -o nosort -F {function} {names} 2>/dev/null || complete -F {function} {names}
"""
# zsh runs the file of an autoloaded function on its first call; otherwise the file is evaluated.
ZSH_END = """
_{name}() {{
  local _fleetctl_typed=${{${{(Q)words[1]}}/#\\~\\//$HOME/}}
  _shtab_{name} "$@"
}}

if [[ $funcstack[1] == _{name} ]]; then
  _{name} "$@"
else
  (( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
  compdef _{name} {names}
fi
"""


def files() -> dict[str, str]:
    """Return the scripts, by where completion systems look for them below a prefix."""
    bash, zsh = f"{SHARE}/bash-completion/completions", f"{SHARE}/zsh/site-functions"
    return {
        f"{bash}/fleetctl": _bash(full_parser(), "fleetctl", "fleet"),
        f"{bash}/fleet": _fleet_in_bash(),
        f"{bash}/fleetd": _bash(fleetd_parser(), "fleetd"),
        f"{zsh}/_fleetctl": _zsh(_briefly(full_parser()), "fleetctl", "fleet"),
        f"{zsh}/_fleetd": _zsh(fleetd_parser(), "fleetd"),
    }


def arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield every argument of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from arguments(command)
        else:
            yield action


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands of a parser by their names."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def kind(action: argparse.Action) -> str | None:
    """Return the completion of an argument's value, or None if it cannot be completed."""
    if action.choices or action.nargs == 0:
        return None
    marked: str | None = getattr(action, "completes", None)
    return marked or BY_METAVAR.get(str(action.metavar))


def _briefly(whole: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser with descriptions that fit a line, as zsh shows them in its menu."""
    for name, parser in commands_of(whole).items():
        parser.description = COMMANDS[name]
    return whole


def _marked(parser: argparse.ArgumentParser, shell: str) -> None:
    """Tell shtab the completion of every argument."""
    for action in arguments(parser):
        if (found := kind(action)) is not None and found != "nothing":
            action.complete = {shell: _completer(found, shell)}  # type: ignore[attr-defined]


def _completer(found: str, shell: str) -> str:
    if shell == "bash":
        return f"_fleetctl_of_{_name(found)}"
    if found in PATHS:
        return PATHS[found][1]
    if found in WORDS:
        return f"({' '.join(WORDS[found])})"
    # The leading space makes zsh call it unchanged.
    return f" _fleetctl_ids {found}"


def _name(found: str) -> str:
    return found.replace(".", "_")


def _bash(parser: argparse.ArgumentParser, *names: str) -> str:
    _marked(parser, "bash")
    script = shtab.complete(parser, "bash")
    # The end registers the function without ours around it; the beginning is instructions.
    script, _, _ = script.partition(f"\ncomplete -o bashdefault -F _shtab_{names[0]} ")
    _, _, script = script.partition("completion/blob/main/doc/configuration.md\n")
    used = sorted({found for action in arguments(parser) if (found := kind(action))} - {"nothing"})
    asking = "\n".join(map(_bash_function, used))
    function = f"_{names[0]}"
    end = BASH_END.format(function=function, shtab=f"_shtab_{names[0]}", names=" ".join(names))
    head = "# " + HEAD.format(names[0])
    own = (HERE / "completions.bash").read_text("utf-8")
    return _tidy(f"{head}\n{script}\n{own}\n{asking}\n{end}")


def _bash_function(found: str) -> str:
    """Return the function that completes one kind; its name means nothing to shtab."""
    if found in PATHS:
        body = f"printf '\\t%s\\n' {PATHS[found][0]}"
    elif found in WORDS:
        body = f'compgen -W "{" ".join(WORDS[found])}" -- "$1"'
    else:
        body = f'_fleetctl_ids {found} "$1"'
    return f"_fleetctl_of_{_name(found)}() {{ {body}; }}"


def _fleet_in_bash() -> str:
    """Return the file that bash-completion loads for the alias."""
    head = "# " + HEAD.format("fleetctl")
    return f'{head}\n. "${{BASH_SOURCE[0]%/*}}/fleetctl"\n'


def _zsh(parser: argparse.ArgumentParser, *names: str) -> str:
    _marked(parser, "zsh")
    script = shtab.complete(parser, "zsh")
    script, _, _ = script.partition("\ntypeset -A opt_args\n")
    _, _, script = script.partition("zsh-completions-howto.org\n")
    # shtab omits that a value may follow the = of its option.
    script = re.sub(r'^(  "\*?--[a-z-]+)(\[.*\]:)', r"\1=\2", script, flags=re.MULTILINE)
    script = re.sub(
        r'^(  {-[a-z]),(--[a-z-]+)(}"\[.*\]:)', r"\1+,\2=\3", script, flags=re.MULTILINE
    )
    end = ZSH_END.format(name=names[0], names=" ".join(names))
    own = (HERE / "completions.zsh").read_text("utf-8")
    head = f"#compdef {' '.join(names)}\n# {HEAD.format(names[0])}"
    return _tidy(f"{head}\n{script}\n{own}\n{end}")


def _tidy(script: str) -> str:
    """Return a script without trailing spaces, and with at most one empty line in a row."""
    text = "\n".join(line.rstrip() for line in script.splitlines())
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.strip("\n") + "\n"
