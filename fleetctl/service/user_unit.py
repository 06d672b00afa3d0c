"""A systemd user unit that runs a command of fleetctl: write, start and remove it.

It is off until a user installs it. launchd has no such unit.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fleetd.protocol.errors import InvalidState, Storage

from ..args import Namespace
from ..output import console
from ..prompts import Cancelled, confirm
from . import manager, systemd
from .install import InstallReport
from .manager import ServiceState, UnitFile, plan_unit_file, with_digest_line
from .spec import ServiceSpec

_USER = ("systemctl", "--user")
_SHOWN = "ActiveState,SubState,Result,NRestarts"


class UserUnit(NamedTuple):
    """A unit by its name, and the texts about it.

    ``group`` is the command that installs it, ``title`` is the name of its program for people.
    ``by_hand`` is the command that does the same without a service. ``on`` and ``missing`` are the
    sentences for a unit that runs and one that is not installed.
    """

    name: str
    group: str
    title: str
    by_hand: str
    on: str
    missing: str

    @property
    def path(self) -> Path:
        """Return the path of the unit."""
        return systemd.directory() / self.name

    @property
    def link(self) -> Path:
        """Return the link that starts it at login."""
        return systemd.directory() / "default.target.wants" / self.name

    def rendered(
        self, spec: ServiceSpec, words: Sequence[str], settings: dict[str, list[str]]
    ) -> str:
        """Return the text of the unit for an installation; ``words`` follow ``fleetctl``."""
        environment = dict(spec.environment)
        environment["PATH"] = f"{Path.home()}/.local/bin:{environment['PATH']}"
        if spec.socket is not None:
            environment["FLEET_SOCKET"] = str(spec.socket)
        command = (*spec.command[:-1], "fleetctl", *words)
        text = systemd.replaced(
            systemd.source(self.name),
            {
                "ExecStart": [" ".join(map(systemd.argument, command))],
                "Environment": [
                    systemd.word(f"{name}={value}") for name, value in environment.items()
                ],
                **settings,
            },
        )
        return with_digest_line(text, "# ", by=self.group)

    def state(self, *more_files: Path) -> ServiceState:
        """Return the state of the unit."""
        here = systemd.is_here()
        words = (*_USER, "show", self.name, f"--property={_SHOWN}")
        seen = manager.properties(*words) if here else {}
        return ServiceState(
            kind=systemd.KIND,
            manager=bool(seen),
            installed=self.path.exists(),
            files=[str(each) for each in (self.path, *more_files) if each.exists()],
            enabled=self.link.is_symlink(),
            active=seen.get("ActiveState") in ("active", "activating"),
            condition=systemd.condition(seen),
            log=f"journalctl --quiet --user-unit={self.name}",
        )

    def check_manager(self) -> None:
        """Raise InvalidState where there is no systemd."""
        if not systemd.is_here():
            raise InvalidState(
                f"This machine has no systemd, so {self.title} cannot run as a service.",
                hint=f"Start {self.by_hand} with your session.",
            )

    def install(
        self,
        args: Namespace,
        text: str,
        *,
        begins: Iterable[str] = (),
        ends: Iterable[str] = (),
        write: Callable[[], list[Path]] = list,
    ) -> InstallReport:
        """Show the unit between the given lines, ask, then write and start it.

        ``write`` writes the other files of the unit and returns them. Raises Cancelled and
        InvalidParams from the question, InvalidState and Storage.
        """
        unit = plan_unit_file(self.path, text)
        data = {"files": [str(self.path)], "changed": not args.dry_run}
        report = InstallReport([], data)
        stream = sys.stderr if args.json else sys.stdout
        for line in (*begins, *_shown(unit, whole=args.dry_run), *ends):
            print(console.clean(line), file=stream)
        if args.dry_run:
            report.notes.append("[DRY RUN] Nothing was written.")
            return report
        if not args.yes and not confirm("Install this?"):
            raise Cancelled("Nothing was changed.")
        report.notes.extend(f"Wrote {file}" for file in write())
        if unit.changes:
            kept = unit.carry_out()
            report.notes.append(f"Wrote {unit.path}")
            if kept:
                report.notes.append(
                    f"It had been edited; as it was: {kept}. Drop-ins are left alone."
                )
        self._enable(report)
        return report

    def _enable(self, report: InstallReport) -> None:
        if systemd.runs():
            manager.run_checked(*_USER, "daemon-reload")
            manager.run_checked(*_USER, "enable", self.name)
            manager.run(*_USER, "reset-failed", self.name)
            manager.run_checked(*_USER, "restart", self.name)
            report.notes.append(self.on)
            return
        try:
            self.link.parent.mkdir(parents=True, exist_ok=True)
            if not self.link.is_symlink():
                self.link.symlink_to(self.path)
        except OSError as error:
            raise Storage(f"{self.link} cannot be made: {error.strerror}.") from error
        report.notes.append(
            "systemd does not run here, so the service does not start. It starts at a login under "
            "systemd."
        )
        report.notes.append(f"Until then, run: {self.by_hand}")

    def stop(self) -> None:
        """Stop it, and let nothing start it again."""
        if systemd.runs():
            manager.run(*_USER, "disable", "--now", self.name)
        with suppress(OSError):
            if self.link.is_symlink():
                self.link.unlink()
            self.link.parent.rmdir()

    def forget(self) -> None:
        """Make the manager notice that the file is gone."""
        if systemd.runs():
            manager.run(*_USER, "daemon-reload")
            manager.run(*_USER, "reset-failed", self.name)


def _shown(unit: UnitFile, *, whole: bool) -> Iterator[str]:
    if unit.changes and (whole or unit.file.data is not None):
        yield from unit.diff()
    elif unit.changes:
        yield f"new: {unit.path}"


class UnitRemoval:
    """What is removed with a unit; a subclass adds what else belongs to it."""

    def __init__(self, unit: UserUnit) -> None:
        planned = plan_unit_file(unit.path, None)
        self._unit = unit
        self._planned = [planned] if planned.changes else []

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.shown())

    def shown(self) -> list[str]:
        """Return the files that are removed."""
        return [str(each.path) for each in self._planned]

    def carry_out(self) -> list[str]:
        """Stop the unit and remove the files; return what was done."""
        lines = []
        if self._planned:
            self._unit.stop()
        for each in self._planned:
            kept = each.carry_out()
            lines.append(f"Removed {each.path}")
            if kept:
                lines.append(f"It had been edited; as it was: {kept}")
        if self._planned:
            self._unit.forget()
        return lines


def uninstall(args: Namespace, unit: UserUnit, removal: UnitRemoval) -> InstallReport:
    """Stop the unit and remove its files; raises Cancelled from the question."""
    data = {"files": removal.shown(), "changed": bool(removal) and not args.dry_run}
    report = InstallReport([], data)
    if not removal:
        report.notes.append(unit.missing)
        return report
    stream = sys.stderr if args.json else sys.stdout
    print(f"This stops {unit.title}, and removes:", file=stream)
    for each in removal.shown():
        print(console.clean(f"  {each}"), file=stream)
    if args.dry_run:
        report.notes.append("[DRY RUN] Nothing was removed.")
        return report
    if not args.yes and not confirm("Remove this?"):
        raise Cancelled("Nothing was changed.")
    report.notes.extend(removal.carry_out())
    return report
