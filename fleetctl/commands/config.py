"""``fleetctl config``: the settings as this shell sees them, beside those of the daemon."""

from argparse import Namespace
from typing import TYPE_CHECKING

from fleetd.protocol.errors import InvalidState, Unavailable

from ..args import Subparsers, command
from ..client import call
from ..client.models import Setting, SystemConfig
from ..output import console, tables
from ..output.tables import Column

if TYPE_CHECKING:
    from fleetd.config import Loaded

COLUMNS = (
    Column("SETTING"),
    Column("VALUE", cut="middle", least=12),
    Column("ORIGIN", matters=1, cut="middle", least=12),
)


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    command(
        subparsers,
        "config",
        run,
        "Print every setting and where it comes from, and where the daemon's differ.",
        "  fleetctl config\n  fleetctl config --json",
    )


def run(args: Namespace) -> int:
    """Print the settings and warn about those that the daemon sees differently."""
    here = _of_this_shell()
    settings = [Setting(key=s.key, value=s.value, origin=s.origin) for s in here.settings()]
    daemon = _of_the_daemon()
    differences = [] if daemon is None else _differences(settings, daemon)
    if args.json:
        told = {"settings": settings, "daemon": daemon, "differences": differences}
        console.print_json(told | {"file": str(here.file)})
        return 0
    rows = [(setting.key, _shown(setting.value), setting.origin) for setting in settings]
    tables.table(COLUMNS, rows)
    console.flow(
        "File: ",
        f"{console.path(str(here.file))}{'' if here.file.exists() else ' (not there yet)'}",
    )
    if daemon is None:
        console.warn("fleetd is not running; these are the settings that it would start with.")
    for each in differences:
        console.warn(
            f"{each['key']} is {_told(each['here'])} here and {_told(each['daemon'])} in the "
            f"daemon ({each['daemon_origin']}). Restart fleetd after a change of the file; a "
            "variable of this shell does not reach a service."
        )
    return 0


def _of_this_shell() -> "Loaded":
    # Imported here: reading the configuration needs platformdirs and a TOML parser.
    from fleetd.config import ConfigError, load

    try:
        return load()
    except ConfigError as error:
        raise InvalidState(str(error), hint="Correct the value, then try again.") from error


def _of_the_daemon() -> list[Setting] | None:
    try:
        return call(SystemConfig()).settings
    except Unavailable:
        return None


def _differences(settings: list[Setting], daemon: list[Setting]) -> list[dict[str, object]]:
    theirs = {setting.key: setting for setting in daemon}
    return [
        {
            "key": ours.key,
            "here": ours.value,
            "daemon": theirs[ours.key].value,
            "daemon_origin": theirs[ours.key].origin,
        }
        for ours in settings
        if ours.key in theirs and theirs[ours.key].value != ours.value
    ]


def _told(value: object) -> str:
    return _shown(value) or "not set"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else console.to_json(value, indent=0)
