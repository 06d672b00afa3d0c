"""``fleetctl uninstall``: takes fleetd out of whatever it was put into, and says what is left.

Of what is stored only what has a name of fleetd's is removed; whatever else lies there stays.
"""

import fcntl
import glob
import os
import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetd.host import paths
from fleetd.protocol.errors import FleetError, InvalidState, Storage

from ..args import Subparsers, command, yes_option
from ..completion import shells
from ..integrations import config_file, settings_backups
from ..integrations import hook_plan as hooks
from ..integrations import mcp as servers
from ..integrations.hook_plan import PlannedChange
from ..integrations.mcp_extra import PACKAGE, installer
from ..integrations.registry import HARNESSES
from ..output import console
from ..prompts import Cancelled, confirm, interactive
from ..service import service, systemd
from ..service.install import ServiceRemoval
from ..service.process import STOP_UNITS
from ..service.systemd import SERVICE

if TYPE_CHECKING:
    from fleetd.config import Config, Loaded

# What lies beside the database by its name, and by one of its own.
_ENDINGS = ("", "-wal", "-shm", "-journal", "-mark", "-lock", ".ballast")
# What damage or a vanished directory had fleetd put aside.
_KEPT = ("-wal.damaged-*", ".rescued-*")
_OF_THE_MACHINE = ("machine-id", "machine-nonces")
# Where a restore or a move has put what it replaced.
_REPLACED = "replaced-*"


class Stored(NamedTuple):
    """One thing that fleetd has stored, by the word that people know, and the paths of it."""

    what: str
    paths: tuple[Path, ...]

    @property
    def where(self) -> Path:
        """Return the path that stands for it."""
        return self.paths[0]


def stored(config: "Config") -> list[Stored]:
    """Return what there is."""
    here = config.database.parent
    state = paths.state_path()
    found = (
        ("database", _beside(config.database)),
        ("machine id", [here / name for name in _OF_THE_MACHINE]),
        ("checkpoints", [config.checkpoints]),
        ("replaced", [*here.glob(_REPLACED), *config.checkpoints.parent.glob(_REPLACED)]),
        ("spool", [paths.spool_path()]),
        ("copies of settings", [settings_backups.directory()]),
        ("log", [state / "fleetd.log", state / "fleetd.log.1"]),
    )
    every = ((what, tuple(filter(os.path.lexists, places))) for what, places in found)
    return [Stored(what, places) for what, places in every if places]


def _beside(database: Path) -> Iterator[Path]:
    for ending in _ENDINGS:
        yield database.with_name(database.name + ending)
    for pattern in _KEPT:
        yield from database.parent.glob(glob.escape(database.name) + pattern)


def delete(config: "Config", each: Stored) -> None:
    """Remove one of them; raises InvalidState while a daemon uses it, and Storage."""
    _check_unused(config)
    for path in each.paths:
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise Storage(
                f"{error.filename or path} cannot be removed: {error.strerror}.",
                hint=f"Look there: ls -la {path.parent}. Then run the command again.",
            ) from error
    for directory in {path.parent for path in each.paths}:
        _remove_if_empty(directory)


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:  # something of somebody else's is in it
        return


def _check_unused(config: "Config") -> None:
    """Raise InvalidState while somebody holds one of the locks of a daemon."""
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
                f"A fleetd uses {what}; nothing of it was removed.",
                hint="Stop it, then run the command again: fleetctl daemon stop",
            ) from error
        finally:
            os.close(handle)


_DATA = "Delete what fleetd remembers as well? It cannot be brought back."


class Part(NamedTuple):
    """One thing to be taken out; ``take_out`` does it and returns what is to be said of it."""

    what: str
    where: str
    take_out: Callable[[], list[str]]


class Left(NamedTuple):
    """Something that stays, and how a person removes it."""

    what: str
    where: str
    how: str = ""


class UninstallPlan:
    """What is to be taken out, what was done of it, and what went wrong with the rest."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.removed: list[Part] = []
        self.said: list[str] = []
        self.errors: list[tuple[str, FleetError]] = []

    def add(self, what: str, found: Callable[[], Iterator[Part]]) -> None:
        """Look for parts; what cannot be looked at stops nothing else."""
        try:
            self.parts += found()
        except FleetError as error:
            self.errors.append((what, error))

    def carry_out(self) -> None:
        """Take every part out that can be."""
        for part in self.parts:
            try:
                self.said += part.take_out()
            except FleetError as error:
                self.errors.append((f"{part.what} {part.where}", error))
            else:
                self.removed.append(part)


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "uninstall",
        run,
        "Take fleetd out: hooks, MCP entries, completions, and the service or the daemon in the "
        "background. What fleetd remembers stays, unless you say otherwise. A second time takes "
        "out what could not be the first time.",
        "  fleetctl uninstall --dry-run\n  fleetctl uninstall\n"
        "  fleetctl uninstall --yes --delete-data",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what goes, change nothing")
    yes_option(parser)
    parser.add_argument(
        "--delete-data",
        action="store_true",
        help="delete what fleetd remembers on this machine, for good (default: ask; with --yes "
        "it is kept)",
    )


def run(args: Namespace) -> int:
    """Show what goes, ask, take it out, and say what is left."""
    settings, plan = _settings(), UninstallPlan()
    for harness in HARNESSES.values():
        name = harness.name
        hooks_of = partial(hooks.plan_uninstall, harness, None)
        plan.add(f"hooks of {name}", partial(_setting, f"hooks of {name}", hooks_of))
        server_of = partial(servers.plan_uninstall, harness, None)
        plan.add(f"MCP entry of {name}", partial(_setting, f"MCP entry of {name}", server_of))
    for shell in shells.SHELLS:
        plan.add(f"completions for {shell}", partial(_completions, shell))
    plan.add("fleetd", _daemon)
    if args.delete_data:
        plan.parts += _data(settings)
    _ask(args, plan, settings)
    if not args.dry_run:
        plan.carry_out()
    return _told(args, plan, settings)


def _settings() -> "Loaded":
    # Imported here: reading the configuration needs platformdirs and a TOML parser.
    from fleetd.config import ConfigError, load

    try:
        return load()
    except ConfigError as error:
        raise InvalidState(str(error), hint="Correct the value, then try again.") from error


def _setting(what: str, planned: Callable[[], PlannedChange]) -> Iterator[Part]:
    """Yield the settings file of an agent CLI, if there is anything of ours in it."""
    change = planned()

    def take_out() -> list[str]:
        # Looked at anew: hooks and the server may stand in one file.
        now = planned()
        if now.file.target != change.file.target:
            raise config_file.changed(change.file)
        now.uninstall()
        return [f"Took the {what} out of {now.file.path}"]

    if change.changes:
        yield Part(what, change.file.where, take_out)


def _completions(shell: str) -> Iterator[Part]:
    for file in shells.installed(shell):
        yield Part(f"completions for {shell}", file.where, partial(shells.remove, file))


def _daemon() -> Iterator[Part]:
    removal = ServiceRemoval(service())
    if removal:
        yield Part(removal.title, ", ".join(removal.shown()), removal.carry_out)
    if removal.foreign:
        raise InvalidState(
            "A service manager runs fleetd by files that are not yours, which stay.",
            hint=f"To stop it: {STOP_UNITS}",
        )


def _data(settings: "Loaded") -> list[Part]:
    config = settings.config

    def take_out(each: Stored) -> list[str]:
        delete(config, each)
        return [f"Deleted {path}" for path in each.paths]

    return [Part(each.what, str(each.where), partial(take_out, each)) for each in stored(config)]


def _ask(args: Namespace, plan: UninstallPlan, settings: "Loaded") -> None:
    """Show what goes, and ask for it; raises Cancelled and InvalidParams from the question."""
    stream = sys.stderr if args.json else sys.stdout
    if plan.parts:
        print("This goes:", file=stream)
        for part in plan.parts:
            print(console.clean(f"  {part.what}: {part.where}"), file=stream)
    if args.dry_run:
        return
    if plan.parts and not args.yes and not confirm("Take all of this out?"):
        raise Cancelled("Nothing was changed.")
    if args.yes or args.delete_data or not interactive():
        return
    if found := _data(settings):
        for part in found:
            print(console.clean(f"  {part.what}: {part.where}"), file=sys.stderr)
        if confirm(_DATA):
            plan.parts += found


def _told(args: Namespace, plan: UninstallPlan, settings: "Loaded") -> int:
    left = list(_left(settings, data=not (args.dry_run and args.delete_data)))
    if args.json:
        console.print_json(_document(args, plan, left))
    else:
        _show(args, plan, left)
    return 1 if plan.errors else 0


def _document(args: Namespace, plan: UninstallPlan, left: list[Left]) -> dict[str, Any]:
    going = plan.parts if args.dry_run else plan.removed
    return {
        "changed": bool(plan.removed),
        "removed": [{"what": each.what, "where": each.where} for each in going],
        "left": [each._asdict() for each in left],
        "errors": [
            {"what": what, "message": error.message, **error.data()} for what, error in plan.errors
        ],
        "notes": plan.said,
    }


def _show(args: Namespace, plan: UninstallPlan, left: list[Left]) -> None:
    console.lines(plan.said)
    if not plan.parts and not plan.errors:
        console.line("Nothing of fleetd is installed here.")
    if args.dry_run:
        console.line("[DRY RUN] Nothing was changed.")
    sys.stdout.flush()
    for what, error in plan.errors:
        console.complain("Error:", f"{what}: {error.message}", "red")
        if error.hint:
            console.complain("Hint:", error.hint)
    if plan.errors:
        console.complain("Hint:", "When that is mended, run fleetctl uninstall again.")
    console.bullets("Left", [_sentence(each) for each in left])


def _sentence(each: Left) -> str:
    return f"{each.what}: {each.where}" + (f" ({each.how})" if each.how else "")


def _left(settings: "Loaded", *, data: bool) -> Iterator[Left]:
    """Yield what stays after this command, with what fleetd remembers if there is ``data``."""
    for each in stored(settings.config) if data else ():
        yield Left(each.what, str(each.where), "fleetctl uninstall --delete-data")
    if settings.config.store:
        shown = next(str(each.value) for each in settings.settings() if each.key == "store")
        yield Left("store", shown, "it is on a server, for the other machines as well")
    if settings.file.exists():
        yield Left("settings", str(settings.file), f"rm {shlex.quote(str(settings.file))}")
    for name in (".bashrc", ".zshrc"):
        if _mentions(Path.home() / name):
            how = "remove the line with fleetctl completions"
            yield Left("completions", f"~/{name}", how)
    yield from _of_systemd()
    how = "there: fleetctl hooks uninstall --all --project; fleetctl mcp uninstall --all --project"
    yield Left("projects", "settings of single projects, where --project put anything", how)
    yield Left("program", f"{PACKAGE} in {sys.prefix}", _package_command(Path(sys.prefix)))


def _mentions(file: Path) -> bool:
    try:
        return "fleetctl completions" in file.read_text("utf-8", errors="replace")
    except OSError:
        return False


def _of_systemd() -> Iterator[Left]:
    drop_ins = systemd.directory() / f"{SERVICE}.d"
    if drop_ins.is_dir():
        yield Left("drop-ins", str(drop_ins), "yours")
    manager = service()
    if manager is not None and manager.lingering():
        how = "loginctl disable-linger, if nothing else of yours needs it"
        yield Left("lingering", "your services go on when you log out", how)


def _package_command(prefix: Path) -> str:
    """Return the command that removes the program, for the way in which it was installed."""
    by = installer(prefix)
    if by == "uv tool":
        return f"uv tool uninstall {PACKAGE}"
    if by == "pipx":
        return f"pipx uninstall {shlex.quote(prefix.name)}"
    python = shlex.quote(sys.executable or "python3")
    if by == "uv pip":
        return f"uv pip uninstall --python {python} {PACKAGE}"
    return f"{python} -m pip uninstall {PACKAGE}"
