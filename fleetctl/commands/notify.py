"""``fleetctl notify``: tell a person which agent needs them, on the desktop or elsewhere."""

import sys
from typing import TYPE_CHECKING

from ..args import CommandParser, Namespace, Subparsers, command, group, yes_option
from ..output import console

if TYPE_CHECKING:
    from ..notify.message import Message
    from ..notify.options import NotifyOptions

RUN_EXAMPLES = """\
  fleetctl notify run
  fleetctl notify run --for permission,question --command 'jq -r .title >> ~/needs.log'
  fleetctl notify run --webhook https://hooks.example.com/services/T0/B0/XX"""
NOT_INSTALLED = "not installed; fleetctl notify install does that"
INSTALL_EXAMPLES = """\
  fleetctl notify install
  fleetctl notify install --desktop --apprise ntfy://my-topic
  fleetctl notify install --dry-run"""


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(
        subparsers, "notify", "Tell you when an agent needs you: on the desktop or elsewhere."
    )
    started = command(
        actions,
        "run",
        run,
        "Follow fleetd and tell you once of each agent that begins to need you, until Ctrl-C. A "
        "state that is over within 2 s is not told, and nothing within 20 s of your own prompt to "
        "that agent. Without options: as fleetctl notify install has saved them, else on the "
        "desktop.",
        RUN_EXAMPLES,
    )
    _options(started)
    installed = command(
        actions,
        "install",
        run_install,
        "Install fleetctl notify run as a systemd user service, and start it. The options go into "
        "a private file. There is no service for launchd: on macOS, start fleetctl notify run with "
        "your session.",
        INSTALL_EXAMPLES,
    )
    _options(installed)
    _changing(installed)
    removed = command(
        actions,
        "uninstall",
        run_uninstall,
        "Stop the service, and remove it with its options.",
        "  fleetctl notify uninstall",
    )
    _changing(removed)
    command(
        actions,
        "status",
        run_status,
        "Show the service and its channels, without secrets. Exit status 1 when it is not running.",
        "  fleetctl notify status",
    )


def _options(parser: CommandParser) -> None:
    parser.add_argument(
        "--for",
        dest="reasons",
        metavar="REASONS",
        help="reasons to tell you, with commas between: permission, question, plan_approval, "
        "finished, limit, failed, lost (default: all but finished)",
    )
    parser.flag("--desktop", help="show it on the desktop (default, unless another one is named)")
    parser.add_argument(
        "--command",
        dest="command_line",
        action="append",
        metavar="CMD",
        help="run a command of the shell, with JSON on its stdin; it is killed after 30 s",
    )
    parser.add_argument(
        "--webhook",
        action="append",
        metavar="URL",
        help="POST JSON to an https URL, or an http URL of this computer; tried for 10 minutes",
    )
    parser.add_argument(
        "--apprise",
        action="append",
        metavar="URL",
        help="tell a service that Apprise knows; needs fleetd[apprise]",
    )


def _changing(parser: CommandParser) -> None:
    parser.flag("--dry-run", help="show the changes, and write nothing")
    yes_option(parser)


def run(args: Namespace) -> int:
    """Tell what agents need, until Ctrl-C or SIGTERM."""
    # Imported here: whoever asks for help needs none of it.
    import msgspec
    import trio

    from ..notify import options as notify_options
    from ..notify.due import DueStates
    from ..notify.ledger import Ledger
    from ..notify.run import Notifier

    options = notify_options.from_arguments(args) or notify_options.from_file()
    options = options or notify_options.NotifyOptions()
    channels, ledger = options.channels(), Ledger(options)

    def on_told(message: "Message") -> None:
        if args.json:
            print(console.to_json(msgspec.to_builtins(message), indent=0), flush=True)
        else:
            print(console.clean(_line(message)), flush=True)

    async def follow() -> None:
        notifier = Notifier(
            DueStates(options.reasons, ledger.read()),
            channels,
            say=_say,
            on_told=on_told,
            keep=ledger.write,
        )
        try:
            await notifier.run()
        finally:
            for each in notifier.outboxes:
                _say(f"{each.name}: {each.sent} sent, {each.dropped} dropped")

    _say(f"Tells of {', '.join(options.reasons)}: {', '.join(options.described())}")
    try:
        trio.run(follow)
    except KeyboardInterrupt:
        return 0
    return 0


def _line(message: "Message") -> str:
    """Return a message on one line; the texts of agents stay out of the journal."""
    return message.title + (f" ({message.project})" if message.project else "")


def _say(text: str) -> None:
    print(console.clean(text), file=sys.stderr, flush=True)


def run_install(args: Namespace) -> int:
    """Write the options and the unit, and start it."""
    from ..notify import options as notify_options
    from ..service import notify_unit

    given = notify_options.from_arguments(args)
    options = given or notify_options.from_file() or notify_options.NotifyOptions()
    options.channels()
    report = notify_unit.install(args, options)
    return console.result(
        args, {**report.told, **_told(options), "notes": report.said}, *report.said
    )


def run_uninstall(args: Namespace) -> int:
    """Stop the unit, and remove it with its options."""
    from ..service import notify_unit

    report = notify_unit.uninstall(args)
    return console.result(args, {**report.told, "notes": report.said}, *report.said)


def run_status(args: Namespace) -> int:
    """Show the unit and its channels."""
    from ..notify import options as notify_options
    from ..service import notify_unit

    state = notify_unit.state()
    options = notify_options.from_file() or notify_options.NotifyOptions()
    document = {
        "installed": state.installed,
        "enabled": state.enabled,
        "running": state.active,
        "condition": state.condition,
        "files": state.files,
        **_told(options),
    }
    pairs: list[tuple[str, object]] = [
        ("State", state.condition or "not running"),
        ("Tells of", ", ".join(options.reasons)),
        ("Channels", ", ".join(options.described())),
        ("Files", ", ".join(state.files)),
        ("Log", state.log),
    ]
    shown = [("Service", "installed"), *pairs] if state.installed else [("Service", NOT_INSTALLED)]
    console.show(args, document, lambda _: console.fields(shown))
    return 0 if state.active else 1


def _told(options: "NotifyOptions") -> dict[str, list[str]]:
    return {"for": [*options.reasons], "channels": options.described()}
