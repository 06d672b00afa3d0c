"""The systemd user unit of ``fleetctl notify run``, its options, and the record of what it sent."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..args import Namespace
from ..integrations import config_file
from ..notify import ledger
from ..notify import options as notify_options
from ..notify.options import NotifyOptions
from . import user_unit
from .install import InstallReport
from .manager import ServiceState
from .spec import ServiceSpec, this_spec
from .user_unit import UnitRemoval, UserUnit

UNIT = UserUnit(
    name="fleet-notify.service",
    group="notify",
    title="notifications",
    by_hand="fleetctl notify run",
    on="Notifications are on.",
    missing="Notifications are not installed.",
)


def rendered(spec: ServiceSpec) -> str:
    """Return the text of the unit for an installation."""
    return UNIT.rendered(spec, ("notify", "run"), {})


def state() -> ServiceState:
    """Return the state of the unit."""
    return UNIT.state(notify_options.options_path())


def install(args: Namespace, options: NotifyOptions) -> InstallReport:
    """Write the options and the unit, and start it.

    Raises Cancelled and InvalidParams from the question, InvalidState without systemd.
    """
    UNIT.check_manager()
    file = notify_options.options_path()

    def write() -> list[Path]:
        notify_options.write(options)
        return [file]

    report = UNIT.install(
        args,
        rendered(this_spec()),
        begins=[f"This sends {', '.join(options.reasons)}: to {', '.join(options.described())}"],
        ends=[f"{file} gets the options; nobody else may read it."],
        write=write,
    )
    report.data["files"].append(str(file))
    return report


class NotifyRemoval(UnitRemoval):
    """What is removed with the notifications: the unit, the options, and what was sent."""

    def __init__(self) -> None:
        super().__init__(UNIT)
        self._files = [*_existing(notify_options.options_path())]
        self._ledgers = [*ledger.directory().glob("*.json")]

    def shown(self) -> list[str]:
        """Return the files that are removed."""
        return [*super().shown(), *(str(each) for each in (*self._files, *self._ledgers))]

    def carry_out(self) -> list[str]:
        """Stop the unit and remove the files; return what was done."""
        lines = super().carry_out()
        for file in self._files:
            notify_options.write(None)
            lines.append(f"Removed {file}")
        for file in self._ledgers:
            config_file.write(config_file.read(file), None)
        with suppress(OSError):
            ledger.directory().rmdir()
        return lines or ["Removed what was told."]


def _existing(path: Path) -> Iterator[Path]:
    if path.exists():
        yield path


def uninstall(args: Namespace) -> InstallReport:
    """Stop the unit, and remove it with its options; raises Cancelled from the question."""
    return user_unit.uninstall(args, UNIT, NotifyRemoval())
