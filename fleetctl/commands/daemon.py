"""``fleetctl daemon``: fleetd as a service of this user, or as a background process."""

from argparse import BooleanOptionalAction
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from fleetd.protocol.errors import FleetError, InvalidState

from ..args import (
    Namespace,
    Subparsers,
    UsageError,
    changing_options,
    command,
    group,
    whole_number,
)
from ..output import console, times
from ..service import control, install, logs, service, status
from ..service.manager import ServiceState
from ..service.process import Running
from ..service.spec import this_spec

_LINES = 50
NOT_RUNNING = {False: "fleetd is not running", True: "fleetd does not answer"}


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(
        subparsers, "daemon", "Install, start and stop fleetd, and show its state and log."
    )
    installed = command(
        actions,
        "install",
        _run_install,
        "Install fleetd as a user service of systemd or launchd, and start it.",
        "  fleetctl daemon install\n  fleetctl daemon install --yes --linger\n"
        "  fleetctl daemon install --dry-run",
    )
    changing_options(installed)
    installed.add_argument(
        "--linger",
        action=BooleanOptionalAction,
        default=None,
        help="keep the service running after you log out (default: ask; with --yes: unchanged)",
    )
    removed = command(
        actions,
        "uninstall",
        _run_uninstall,
        "Stop fleetd and remove its service. The data stays. To remove everything, use fleetctl "
        "uninstall.",
        "  fleetctl daemon uninstall",
    )
    changing_options(removed)
    for name, run, summary in (
        (
            "start",
            partial(_start, control.start),
            "Start fleetd as the installed service, else in the background.",
        ),
        ("stop", _run_stop, "Stop fleetd."),
        (
            "restart",
            partial(_start, control.restart),
            "Restart fleetd, for example after an upgrade.",
        ),
        ("status", _run_status, "Show how fleetd runs. Exit status 1 when it is not running."),
    ):
        command(actions, name, run, summary, f"  fleetctl daemon {name}")
    shown = command(
        actions,
        "logs",
        _run_logs,
        "Show the log of fleetd.",
        "  fleetctl daemon logs -n 200\n  fleetctl daemon logs --follow",
    )
    shown.add_argument(
        "-n",
        "--lines",
        type=whole_number(0, 1_000_000),
        default=_LINES,
        metavar="N",
        help=f"show the last N lines (default: {_LINES})",
    )
    shown.flag("-f", "--follow", help="print new lines as they come")


def _run_install(args: Namespace) -> int:
    with _log_shown(args):
        if (manager := service()) is None:
            raise InvalidState(
                "This machine has neither systemd nor launchd, so fleetd cannot run as a service.",
                hint="Start it with fleetctl daemon start,"
                " and add this command to the start of your session.",
            )
        report = install.install(args, manager, this_spec())
    return _show_report(args, report)


def _run_uninstall(args: Namespace) -> int:
    return _show_report(args, install.uninstall(args, service()))


def _show_report(args: Namespace, report: install.InstallReport) -> int:
    return console.result(args, {**report.data, "notes": report.notes}, *report.notes)


def _start(begin: Callable[[], tuple[Running, str]], args: Namespace) -> int:
    with _log_shown(args), control.shown(args):
        found, how = begin()
    document = {"pid": found.pid, "version": found.hello.version, "done": how}
    return console.result(args, document, f"fleetd {found.hello.version}: {how} (pid {found.pid})")


@contextmanager
def _log_shown(args: Namespace) -> Iterator[None]:
    """Print the end of the log with an error that includes it."""
    try:
        yield
    except FleetError as error:
        if not args.json:
            console.print_stderr(*error.values.get("log", ()))
        raise


def _run_stop(args: Namespace) -> int:
    done = control.stop()
    return console.result(args, {"done": done}, f"fleetd: {done}")


def _run_status(args: Namespace) -> int:
    seen = status.service_status()
    console.show(args, seen.as_dict(), lambda _: _show(seen))
    return 0 if seen.running else 1


def _show(seen: status.ServiceStatus) -> None:
    by = "in the background" if seen.run_by == "background" else f"under {seen.run_by}"
    at = f"fleetd {seen.version} runs {by} (pid {seen.pid}) {_how_long(seen)}"
    console.flow("", at if seen.running else NOT_RUNNING[seen.silent])
    state = seen.service
    pairs: list[tuple[str, object]] = [("Socket", seen.socket), ("Log", seen.log)]
    if state is not None:
        pairs += [
            ("Service", _service(state)),
            ("State", state.condition if state.installed else None),
            ("Lingering", {True: "on", False: "off", None: None}[state.lingering]),
        ]
    console.fields(pairs)
    console.warn(*seen.warnings)


def _how_long(seen: status.ServiceStatus) -> str:
    at = times.ms_of(seen.started_at or "")
    if at is None or not console.human_readable():
        return f"since {seen.started_at}"
    return f"for {times.span(console.now_ms() - at)}"


def _service(state: ServiceState) -> str:
    if not state.installed:
        return f"not installed in {state.kind}; fleetctl daemon install does that"
    parts = [f"{state.kind}, {'enabled' if state.enabled else 'not enabled'}"]
    if not state.manager:
        parts.append(f"{state.kind} of this user does not run now")
    elif state.listening and not state.active:
        parts.append("its first client starts it")
    return "; ".join([*parts, *state.files])


def _run_logs(args: Namespace) -> int:
    manager = control.managed()
    if not args.json:
        return logs.show(manager, args.lines, follow=args.follow)
    if args.follow:
        raise UsageError("--follow never ends, so it cannot print one JSON document.")
    lines = logs.last_lines(manager, args.lines)
    return console.result(args, {"log": status.service_status().log, "lines": lines})
