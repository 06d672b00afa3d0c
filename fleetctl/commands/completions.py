"""``fleetctl completions``: completions of fleetctl for bash and zsh."""

from ..args import SUPPRESS, Namespace, Subparsers, UsageError, command, yes_option
from ..completion.shells import SHELLS, install, script
from ..output import console

EXAMPLES = """\
  eval "$(fleetctl completions bash)"   # in ~/.bashrc
  eval "$(fleetctl completions zsh)"    # in ~/.zshrc, after compinit
  fleetctl completions bash --install   # once, where bash-completion is installed"""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "completions",
        run,
        "Print or install a script with which a shell completes commands, options and ids.",
        EXAMPLES,
    )
    parser.add_argument("shell", choices=SHELLS, nargs="?", metavar="SHELL", help="bash or zsh")
    parser.flag("--install", help="install the files in the directories that the shell reads")
    parser.flag("--dry-run", help="show the files, and write nothing")
    yes_option(parser)
    # The scripts call this option with a kind and the beginning of an id.
    parser.add_argument("--ids", nargs=2, help=SUPPRESS)


def run(args: Namespace) -> int:
    """Print the script of a shell, install it, or print ids."""
    if args.ids is not None:
        from ..completion.candidates import print_candidates

        print_candidates(*args.ids)
        return 0
    if args.shell is None:
        raise UsageError(f"Name your shell: {' or '.join(SHELLS)}.")
    if args.install:
        return install(args, args.shell)
    text = script(args.shell)
    return console.show(args, {"shell": args.shell, "script": text}, lambda _: print(text, end=""))
