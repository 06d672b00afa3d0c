"""``fleetctl notify``: tells a person which agent needs them, on the desktop or elsewhere."""

import time
from typing import TYPE_CHECKING

from ..args import CommandParser, Namespace, Subparsers, changing_options, command, group
from ..output import console

if TYPE_CHECKING:
    from ..notify.message import Message
    from ..notify.options import NotifyOptions

RUN_EXAMPLES = """\
  fleetctl notify run
  fleetctl notify run --for permission --command 'jq -r .title >> ~/needs.log'
  fleetctl notify run --webhook https://hooks.example.com/services/T0/B0/XX"""
NOT_INSTALLED = "not installed; fleetctl notify install does that"
TEST_EXAMPLES = """\
  fleetctl notify test
  fleetctl notify test --command 'jq -r .title >> ~/needs.log'"""
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
        "Follow fleetd and send one message for each agent that begins to need you, until Ctrl-C. "
        "A state that ends within 2 s gets no message, and you get none within 20 s of your own "
        "prompt to that agent. Without options it uses those that fleetctl notify install saved, "
        "else the desktop. With --json, it prints each message as one line of JSON.",
        RUN_EXAMPLES,
    )
    _options(started)
    tried = command(
        actions,
        "test",
        run_test,
        "Send one test message over each channel, once. Exit status 1 when one fails. Without "
        "options it uses those that fleetctl notify install saved, else the desktop.",
        TEST_EXAMPLES,
    )
    tried.set_defaults(reasons=None)
    _channels(tried)
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
    changing_options(installed)
    removed = command(
        actions,
        "uninstall",
        run_uninstall,
        "Stop the service, and remove it with its options.",
        "  fleetctl notify uninstall",
    )
    changing_options(removed)
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
        "failed, limit, lost, finished (default: all but finished)",
    )
    _channels(parser)


def _channels(parser: CommandParser) -> None:
    parser.flag("--desktop", help="show it on the desktop (default, unless another one is named)")
    parser.add_argument(
        "--command",
        dest="command_line",
        action="append",
        metavar="CMD",
        help="run a command of the shell, with a line of JSON on its stdin; killed after 30 s",
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


def run(args: Namespace) -> int:
    """Report what agents need, until Ctrl-C or SIGTERM."""
    # Imported here: help needs none of it.
    import msgspec
    import trio

    from ..notify import options as notify_options
    from ..notify.due import DueStates
    from ..notify.ledger import Ledger
    from ..notify.run import Notifier

    options = notify_options.from_arguments(args) or notify_options.from_file()
    options = options or notify_options.NotifyOptions()
    ledger, every = Ledger(options), options.channels()
    options, missing = options.reachable()
    channels = [each for each in every if each.name != "desktop"] if missing else every

    def on_message(message: "Message") -> None:
        if args.json:
            print(console.to_json(msgspec.to_builtins(message), indent=0), flush=True)
        else:
            print(console.clean(_line(message)), flush=True)

    async def follow() -> None:
        notifier = Notifier(
            DueStates(options.reasons, ledger.read()),
            channels,
            log=console.print_stderr,
            on_message=on_message,
            keep=ledger.write,
        )
        try:
            await notifier.run()
        finally:
            for each in notifier.outboxes:
                console.print_stderr(f"{each.name}: {each.sent} sent, {each.dropped} dropped")

    if missing:
        console.print_stderr(missing)
    console.print_stderr(_sends(options))
    try:
        trio.run(follow)
    except KeyboardInterrupt:
        return 0
    return 0


def run_test(args: Namespace) -> int:
    """Try each channel once."""
    import trio

    from fleetd.protocol.timestamps import iso

    from ..notify import options as notify_options
    from ..notify.message import trial_message
    from ..notify.outbox import try_once

    given = notify_options.from_arguments(args)
    options = given or notify_options.from_file() or notify_options.NotifyOptions()
    channels, message = options.channels(), trial_message(iso(time.time_ns() // 1_000_000))
    tried: list[dict[str, object]] = []

    async def test() -> None:
        for each in channels:
            failed = await try_once(each, message)
            tried.append({"channel": each.name, "error": str(failed) if failed else None})

    trio.run(test)
    lines = [
        f"{each['channel']}: " + (f"not sent: {each['error']}" if each["error"] else "sent")
        for each in tried
    ]
    console.result(args, {"channels": tried}, *lines)
    return 1 if any(each["error"] for each in tried) else 0


def _line(message: "Message") -> str:
    """Return a message on one line; the texts of agents stay out of the journal."""
    return message.title + (f" ({message.project})" if message.project else "")


def _sends(options: "NotifyOptions") -> str:
    return f"Sends {', '.join(options.reasons)}: to {', '.join(options.described())}"


def run_install(args: Namespace) -> int:
    """Write the options and the unit, and start it."""
    from ..notify import options as notify_options
    from ..service import notify_unit

    given = notify_options.from_arguments(args)
    options = given or notify_options.from_file() or notify_options.NotifyOptions()
    options.channels()
    report = notify_unit.install(args, options)
    return console.result(
        args, {**report.data, **_document(options), "notes": report.notes}, *report.notes
    )


def run_uninstall(args: Namespace) -> int:
    """Stop the unit, and remove it with its options."""
    from ..service import notify_unit

    report = notify_unit.uninstall(args)
    return console.result(args, {**report.data, "notes": report.notes}, *report.notes)


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
        **_document(options),
    }
    pairs: list[tuple[str, object]] = [
        ("State", state.condition or "not running"),
        ("Sends", ", ".join(options.reasons)),
        ("Channels", ", ".join(options.described())),
        ("Files", ", ".join(state.files)),
        ("Log", state.log),
    ]
    shown = [("Service", "installed"), *pairs] if state.installed else [("Service", NOT_INSTALLED)]
    console.show(args, document, lambda _: console.fields(shown))
    return 0 if state.active else 1


def _document(options: "NotifyOptions") -> dict[str, list[str]]:
    return {"for": [*options.reasons], "channels": options.described()}
