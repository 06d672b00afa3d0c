"""Installation and removal of the service: show it, ask once, report what was done."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from fleetd.host import paths
from fleetd.protocol.errors import FleetError, InvalidState

from ..args import Namespace
from ..output import console
from ..prompts import Cancelled, confirm, interactive
from . import control, process
from .manager import Service, UnitFile
from .spec import ServiceSpec


class InstallReport(NamedTuple):
    """What was done: ``notes`` are sentences for people, ``data`` is for programs."""

    notes: list[str]
    data: dict[str, Any]


def install(args: Namespace, manager: Service, spec: ServiceSpec) -> InstallReport:
    """Write the files, start the service, and check that it answers.

    Raises Cancelled and InvalidParams from the question, and the error of a step that failed.
    """
    changes = manager.plan_install(spec)
    pending = [each for each in changes if each.changes]
    files = [str(each.path) for each in changes]
    changed = bool(pending) and not args.dry_run
    report = InstallReport([], {"kind": manager.KIND, "files": files, "changed": changed})
    if pending:
        _show(pending, manager, whole=args.dry_run, stream=_stream(args))
    if args.dry_run:
        report.notes.append("[DRY RUN] Nothing was written.")
        return report
    if pending:
        _ask(args, "Install this?")
        _write(pending, manager, spec, report)
    else:
        report.notes.append(f"The {manager.TITLE} is installed already.")
        _take_over(manager, report)
    manager.enable()
    _begin(args, manager, report)
    _linger(args, manager, report)
    report.notes.extend(_environment_notes(spec))
    return report


def _write(
    pending: Sequence[UnitFile], manager: Service, spec: ServiceSpec, report: InstallReport
) -> None:
    manager.stop_before_change()
    # A directory that cannot be created here could not be made writable for the service either.
    for directory in spec.writable:
        _make_private(directory)
    _take_over(manager, report)
    for each in pending:
        kept = each.carry_out()
        report.notes.append(f"Wrote {each.path}")
        if kept:
            report.notes.append(f"It had been edited; as it was: {kept}. Drop-ins are left alone.")


def _take_over(manager: Service, report: InstallReport) -> None:
    """Stop a daemon that was started by hand: it holds the socket that the manager needs."""
    seen = manager.state()
    if not seen.manager or seen.active or seen.listening:
        return
    report.notes.extend(_end())


def _end() -> list[str]:
    ended = process.end(paths.socket_path())
    if ended is None:
        return []
    return [f"Stopped the fleetd that ran in the background (pid {ended.pid})."]


def _make_private(directory: Path) -> None:
    before = os.umask(0o077)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidState(
            f"{directory} cannot be made: {error.strerror}.",
            hint=f"Look at this place: ls -ld {directory.parent}.",
        ) from error
    finally:
        os.umask(before)


def _begin(args: Namespace, manager: Service, report: InstallReport) -> None:
    """Check that the service answers, or report when it will."""
    path = paths.socket_path()
    if manager.runs():
        found = control.wait_until_answering(path, manager)
        report.notes.append(
            f"fleetd {found.hello.version} answers (pid {found.pid}); {manager.KIND} starts it "
            "with the first client from now on."
            if found.activated
            else f"fleetd {found.hello.version} answers (pid {found.pid})."
        )
        report.data["pid"] = found.pid
        return
    report.notes.append(manager.waiting())
    if process.look(path) is not None:
        report.notes.append("Until then, the running fleetd continues.")
    elif args.yes or (interactive() and confirm("Start fleetd in the background until then?")):
        found = process.start(path)
        report.notes.append(f"Until then, fleetd runs in the background (pid {found.pid}).")
        report.data["pid"] = found.pid
    else:
        report.notes.append("Until then, start it with: fleetctl daemon start")


def _linger(args: Namespace, manager: Service, report: InstallReport) -> None:
    """Offer to keep the service running when its user logs out."""
    if manager.lingering() is not False or args.linger is False:
        return
    question = "A user service ends at logout. Let yours go on after it (loginctl enable-linger)?"
    if not args.linger and (args.yes or not interactive() or not confirm(question)):
        report.notes.append("It stops when you log out. To keep it running, add --linger.")
        return
    try:
        manager.linger()
    except FleetError as error:
        report.notes.append(f"Lingering could not be switched on: {error.message}")
    else:
        report.notes.append("Lingering is on: fleetd keeps running after you log out.")


def _environment_notes(spec: ServiceSpec) -> list[str]:
    lines = []
    if spec.socket is not None:
        lines.append(
            f"It listens on {spec.socket}: every shell and hook needs "
            f"FLEET_SOCKET={shlex.quote(str(spec.socket))}."
        )
    if spec.omitted_variables:
        names = ", ".join(spec.omitted_variables)
        lines.append(f"A service does not see {names} of this shell; set it in config.toml.")
    return lines


class ServiceRemoval:
    """What is removed so that fleetd no longer runs: the service's files, or only a process.

    Raises Silent for a daemon that does not answer, InvalidState for files that must stay.
    """

    def __init__(self, manager: Service | None) -> None:
        every = manager.plan_uninstall() if manager else []
        self.pending = [each for each in every if each.changes]
        seen = manager.state() if manager and not self.pending else None
        self.foreign = seen is not None and (seen.active or seen.listening)
        """Whether a manager runs fleetd from files that are not this user's."""
        self.found: process.Running | None = None
        if not self.pending and not self.foreign:
            self.found = process.look(paths.socket_path())
        self._manager = manager

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.pending or self.found)

    @property
    def title(self) -> str:
        """Return its name for people."""
        return self._manager.TITLE if self._manager and self.pending else "fleetd in the background"

    def shown(self) -> list[str]:
        """Return what is removed: the files, or the process."""
        if self.found is not None:
            return [f"pid {self.found.pid}"]
        return [str(each.path) for each in self.pending]

    def carry_out(self) -> list[str]:
        """Stop fleetd and remove the files; return what was done."""
        lines = []
        if self._manager and self.pending:
            self._manager.disable()
            for each in self.pending:
                kept = each.carry_out()
                lines.append(f"Removed {each.path}")
                if kept:
                    lines.append(f"It had been edited; as it was: {kept}")
            self._manager.forget()
        return lines + _end()


def uninstall(args: Namespace, manager: Service | None) -> InstallReport:
    """Stop fleetd, however it runs, and remove the service; raises Cancelled from the question."""
    removal = ServiceRemoval(manager)
    kind = manager.KIND if manager else "background"
    files = [str(each.path) for each in removal.pending]
    changed = bool(removal) and not args.dry_run
    report = InstallReport([], {"kind": kind, "files": files, "changed": changed})
    if not removal:
        what = f"The {manager.TITLE} is not installed" if manager else "There is no service"
        end = "and fleetd does not run"
        if removal.foreign:
            end = f"but somebody else's units run fleetd. To stop it: {process.STOP_UNITS}"
        report.notes.append(f"{what}, {end}.")
        return report
    goes = f" and removes the {removal.title}" if removal.pending else ", which runs by itself"
    stream = _stream(args)
    print(f"This stops fleetd{goes}:", file=stream)
    for each in removal.shown():
        print(console.clean(f"  {each}"), file=stream)
    if args.dry_run:
        report.notes.append("[DRY RUN] Nothing was removed.")
        return report
    _ask(args, "Remove this?" if removal.pending else "Stop it?")
    report.notes.extend(removal.carry_out())
    report.notes.append("The data of fleetd stays: fleetctl config shows where.")
    return report


def _stream(args: Namespace) -> TextIO:
    return sys.stderr if args.json else sys.stdout


def _show(pending: Sequence[UnitFile], manager: Service, *, whole: bool, stream: TextIO) -> None:
    """Show new files by the lines specific to this installation, changed ones by their diff."""
    for each in pending:
        if each.file.data is None and not whole:
            print(console.clean(f"new: {each.path}"), file=stream)
            shown = [f"  {line}" for line in manager.summary([each])]
        else:
            shown = list(each.diff())
        for line in shown:
            print(console.clean(line), file=stream)
    print(file=stream)


def _ask(args: Namespace, question: str) -> None:
    if not args.yes and not confirm(question):
        raise Cancelled("Nothing was changed.")
