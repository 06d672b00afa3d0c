"""``fleetctl uninstall``: removes fleetd from all settings and services, and lists leftovers.

It deletes only stored files with names of fleetd; anything else in those directories stays.
"""

import fcntl
import glob
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetd.host import paths
from fleetd.protocol.errors import FleetError, InvalidState, Storage

from ..args import Namespace, Subparsers, command, yes_option
from ..completion import shells
from ..context import loaded_settings
from ..integrations import config_file, launcher, settings_backups
from ..integrations import hook_plan as hooks
from ..integrations import mcp as servers
from ..integrations.hook_plan import PlannedChange
from ..integrations.mcp_extra import PACKAGE, installer
from ..integrations.registry import HARNESSES
from ..output import console
from ..prompts import Cancelled, confirm, interactive
from ..service import service, systemd
from ..service.install import ServiceRemoval
from ..service.notify_unit import NotifyRemoval
from ..service.process import STOP_UNITS
from ..service.systemd import SERVICE
from ..service.user_unit import UnitRemoval
from ..service.web_unit import WebRemoval

if TYPE_CHECKING:
    from fleetd.config import Config, Loaded

# Files beside the database: endings of its name. _MACHINE_FILES have names of their own.
_ENDINGS = ("", "-wal", "-shm", "-journal", "-mark", "-lock", ".ballast")
# Files that fleetd put aside after damage, or when a directory had vanished.
_KEPT = ("-wal.damaged-*", ".rescued-*")
_MACHINE_FILES = ("machine-id", "machine-nonces")
# Where a restore or a move put the files that it replaced.
_REPLACED = "replaced-*"


def _stored(config: "Config") -> dict[str, list[Path]]:
    """Return the paths of what fleetd has stored, by words that people know."""
    here = config.database.parent
    state = paths.state_path()
    found = {
        "database": _database_files(config.database),
        "machine id": [here / name for name in _MACHINE_FILES],
        "checkpoints": [config.checkpoints],
        "replaced": [*here.glob(_REPLACED), *config.checkpoints.parent.glob(_REPLACED)],
        "spool": [paths.spool_path()],
        "copies of settings": [settings_backups.directory()],
        "log": [state / "fleetd.log", state / "fleetd.log.1"],
    }
    there = {what: list(filter(os.path.lexists, places)) for what, places in found.items()}
    return {what: places for what, places in there.items() if places}


def _database_files(database: Path) -> Iterator[Path]:
    for ending in _ENDINGS:
        yield database.with_name(database.name + ending)
    for pattern in _KEPT:
        yield from database.parent.glob(glob.escape(database.name) + pattern)


def _delete(config: "Config", stored: list[Path]) -> list[str]:
    """Delete paths, and report it; raises InvalidState while a daemon uses them, and Storage."""
    _check_unused(config)
    for path in stored:
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise Storage(
                f"{error.filename or path} cannot be removed: {error.strerror}.",
                hint=f"Look at the directory: ls -la {path.parent}. Then run the command again.",
            ) from error
    for directory in {path.parent for path in stored}:
        with suppress(OSError):  # the directory has files of others
            directory.rmdir()
    return [f"Deleted {path}" for path in stored]


def _check_unused(config: "Config") -> None:
    """Raise InvalidState while a process holds one of the locks of a daemon."""
    locks = paths.locks_of(config.database, config.checkpoints, config.socket)
    for what, path in locks.items():
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # no daemon has made it, or it is none
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InvalidState(
                f"A running fleetd uses {what}; it was not removed.",
                hint="Stop it, then run the command again: fleetctl daemon stop",
            ) from error
        finally:
            os.close(handle)


_DATA = "Delete what fleetd remembers as well? It cannot be brought back."


class UninstallStep(NamedTuple):
    """One thing to remove; ``take_out`` removes it and returns what to report."""

    what: str
    where: str
    take_out: Callable[[], list[str]]


class Leftover(NamedTuple):
    """Something that stays, and how a person removes it."""

    what: str
    where: str
    how: str = ""


class UninstallPlan:
    """What to remove, what was removed, and the errors for the rest."""

    def __init__(self) -> None:
        self.removals: list[UninstallStep] = []
        self.removed: list[UninstallStep] = []
        self.notes: list[str] = []
        self.errors: list[tuple[str, FleetError]] = []

    def add(self, what: str, found: Callable[[], Iterator[UninstallStep]]) -> None:
        """Look for removals; an error here does not stop the others."""
        try:
            self.removals += found()
        except FleetError as error:
            self.errors.append((what, error))

    def carry_out(self) -> None:
        """Carry out every removal that is possible."""
        for removal in self.removals:
            try:
                self.notes += removal.take_out()
            except FleetError as error:
                self.errors.append((f"{removal.what} {removal.where}", error))
            else:
                self.removed.append(removal)


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "uninstall",
        run,
        "Remove fleetd's hooks, MCP entries, completions, notifications and web server, and its "
        "service or its daemon in the background. The data stays, except with --delete-data. Run "
        "it again to retry a failed removal.",
        "  fleetctl uninstall --dry-run\n  fleetctl uninstall\n"
        "  fleetctl uninstall --yes --delete-data",
    )
    parser.flag("--dry-run", help="show the changes, and change nothing")
    yes_option(parser)
    parser.flag(
        "--delete-data",
        help="delete the data of fleetd on this machine for good (default: ask; with --yes: keep)",
    )


def run(args: Namespace) -> int:
    """Show what will be removed, ask, remove it, and list what is left."""
    settings, plan = loaded_settings(), UninstallPlan()
    for harness in HARNESSES.values():
        for what, planned in (
            (f"hooks of {harness.name}", hooks.plan_uninstall),
            (f"MCP entry of {harness.name}", servers.plan_uninstall),
        ):
            plan.add(what, partial(_setting, what, partial(planned, harness, None)))
    plan.add("launcher of hooks", _launcher)
    for shell in shells.SHELLS:
        plan.add(f"completions for {shell}", partial(_completions, shell))
    plan.add("notifications", partial(_unit, "notifications", NotifyRemoval))
    plan.add("web server", partial(_unit, "web server", WebRemoval))
    plan.add("fleetd", _daemon)
    if args.delete_data:
        plan.removals += _data(settings)
    _ask(args, plan, settings)
    if not args.dry_run:
        plan.carry_out()
    left = list(_left(settings, data=not (args.dry_run and args.delete_data)))
    console.show(args, _document(args, plan, left), lambda _: _show(args, plan, left))
    return 1 if plan.errors else 0


def _setting(what: str, planned: Callable[[], PlannedChange]) -> Iterator[UninstallStep]:
    """Yield the settings file of an agent CLI, if it contains anything of fleetd."""
    change = planned()

    def take_out() -> list[str]:
        # Read it again: hooks and the server may be in one file.
        now = planned()
        if now.file.target != change.file.target:
            raise config_file.changed(change.file)
        now.uninstall()
        return [f"Took the {what} out of {now.file.path}"]

    if change.changes:
        yield UninstallStep(what, change.file.where, take_out)


def _launcher() -> Iterator[UninstallStep]:
    place = launcher.path()

    def take_out() -> list[str]:
        launcher.remove()
        return [f"Removed {place}"]

    if place.exists():
        yield UninstallStep("launcher of hooks", str(place), take_out)


def _completions(shell: str) -> Iterator[UninstallStep]:
    for file in shells.installed(shell):
        yield UninstallStep(f"completions for {shell}", file.where, partial(shells.remove, file))


def _unit(what: str, planned: Callable[[], UnitRemoval]) -> Iterator[UninstallStep]:
    removal = planned()
    if removal:
        yield UninstallStep(what, ", ".join(removal.shown()), removal.carry_out)


def _daemon() -> Iterator[UninstallStep]:
    removal = ServiceRemoval(service())
    if removal:
        yield UninstallStep(removal.title, ", ".join(removal.shown()), removal.carry_out)
    if removal.foreign:
        raise InvalidState(
            "The service files of fleetd do not belong to you, so they stay.",
            hint=f"To stop it: {STOP_UNITS}",
        )


def _data(settings: "Loaded") -> list[UninstallStep]:
    config = settings.config
    return [
        UninstallStep(what, str(places[0]), partial(_delete, config, places))
        for what, places in _stored(config).items()
    ]


def _ask(args: Namespace, plan: UninstallPlan, settings: "Loaded") -> None:
    """Show what will be removed, and ask; raises Cancelled and InvalidParams from the question."""
    stream = sys.stderr if args.json else sys.stdout
    if plan.removals:
        print("To remove:", file=stream)
        for removal in plan.removals:
            print(console.clean(f"  {removal.what}: {removal.where}"), file=stream)
    if args.dry_run:
        return
    if plan.removals and not args.yes and not confirm("Take all of this out?"):
        raise Cancelled("Nothing was changed.")
    if args.yes or args.delete_data or not interactive():
        return
    if found := _data(settings):
        for removal in found:
            console.print_stderr(f"  {removal.what}: {removal.where}")
        if confirm(_DATA):
            plan.removals += found


def _document(args: Namespace, plan: UninstallPlan, left: list[Leftover]) -> dict[str, Any]:
    going = plan.removals if args.dry_run else plan.removed
    return {
        "changed": bool(plan.removed),
        "removed": [{"what": each.what, "where": each.where} for each in going],
        "left": [each._asdict() for each in left],
        "errors": [
            {"what": what, "message": error.message, **error.data()} for what, error in plan.errors
        ],
        "notes": plan.notes,
    }


def _show(args: Namespace, plan: UninstallPlan, left: list[Leftover]) -> None:
    console.lines(plan.notes)
    if not plan.removals and not plan.errors:
        console.line("fleetd is not installed here.")
    if args.dry_run:
        console.line("[DRY RUN] Nothing was changed.")
    sys.stdout.flush()
    for what, error in plan.errors:
        console.print_error("Error:", f"{what}: {error.message}", "red")
        if error.hint:
            console.print_error("Hint:", error.hint)
    if plan.errors:
        console.print_error("Hint:", "Correct this, then run fleetctl uninstall again.")
    console.bullets(
        "Kept",
        [f"{each.what}: {each.where}" + (f" ({each.how})" if each.how else "") for each in left],
    )


def _left(settings: "Loaded", *, data: bool) -> Iterator[Leftover]:
    """Yield what stays after this command, including fleetd's data if there is ``data``."""
    for each in _data(settings) if data else ():
        yield Leftover(each.what, each.where, "fleetctl uninstall --delete-data")
    if settings.config.store:
        shown = next(str(each.value) for each in settings.settings() if each.key == "store")
        yield Leftover("store", shown, "it is on a server that other machines use")
    if settings.file.exists():
        yield Leftover("settings", str(settings.file), f"rm {shlex.quote(str(settings.file))}")
    for name in (".bashrc", ".zshrc"):
        if _mentions(Path.home() / name):
            yield Leftover("completions", f"~/{name}", "remove the line with fleetctl completions")
    drop_ins = systemd.directory() / f"{SERVICE}.d"
    if drop_ins.is_dir():
        yield Leftover("drop-ins", str(drop_ins), "yours")
    manager = service()
    if manager is not None and manager.lingering():
        how = "loginctl disable-linger, if nothing else of yours needs it"
        yield Leftover("lingering", "your services continue after you log out", how)
    how = "there: fleetctl hooks uninstall --all --project; fleetctl mcp uninstall --all --project"
    yield Leftover("projects", "settings of projects that --project changed", how)
    yield Leftover("program", f"{PACKAGE} in {sys.prefix}", _package_command(Path(sys.prefix)))


def _mentions(file: Path) -> bool:
    try:
        return "fleetctl completions" in file.read_text("utf-8", errors="replace")
    except OSError:
        return False


def _package_command(prefix: Path) -> str:
    """Return the command that removes the program, for the way in which it was installed."""
    python = shlex.quote(sys.executable or "python3")
    commands = {
        "uv tool": f"uv tool uninstall {PACKAGE}",
        "pipx": f"pipx uninstall {shlex.quote(prefix.name)}",
        "uv pip": f"uv pip uninstall --python {python} {PACKAGE}",
    }
    return commands.get(installer(prefix), f"{python} -m pip uninstall {PACKAGE}")
