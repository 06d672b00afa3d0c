"""``fleetctl config``: the settings of this shell, compared with those of the daemon."""

from fleetd.protocol.errors import Unavailable

from ..args import Namespace, Subparsers, command
from ..client import call
from ..client.models import Setting, SystemConfig
from ..context import loaded_settings
from ..output import console, tables
from ..output.tables import Column

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
        "Print all settings with their sources, and warn where those of the daemon differ.",
        "  fleetctl config\n  fleetctl config --json",
    )


def run(args: Namespace) -> int:
    """Print the settings, and warn about those that differ in the daemon."""
    here = loaded_settings()
    settings = [Setting(key=s.key, value=s.value, origin=s.origin) for s in here.settings()]
    try:
        daemon = call(SystemConfig()).settings
    except Unavailable:
        daemon = None
    differences = [] if daemon is None else _differences(settings, daemon)
    if args.json:
        document = {"settings": settings, "daemon": daemon, "differences": differences}
        console.print_json(document | {"file": str(here.file)})
        return 0
    tables.table(COLUMNS, [(each.key, _shown(each.value), each.origin) for each in settings])
    missing = "" if here.file.exists() else " (not there yet)"
    console.flow("File: ", f"{console.path(str(here.file))}{missing}")
    if daemon is None:
        console.warn("fleetd is not running; these are the settings that it would start with.")
    for each in differences:
        ours, theirs = (_shown(each[name]) or "not set" for name in ("here", "daemon"))
        console.warn(
            f"{each['key']} is {ours} here and {theirs} in the daemon "
            f"({each['daemon_origin']}). Restart fleetd after a change of the file; a "
            "variable of this shell does not reach a service."
        )
    return 0


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


def _shown(value: object) -> str:
    return value if isinstance(value, str) else console.to_json(value, indent=0)
