"""``fleetd --restore FILE``: keeps daemons out, restores, and reports what was moved where."""

import shlex
import sys
from pathlib import Path

import msgspec

from ...config import Loaded, without_password
from ...host.instance_lock import AlreadyRunning, only_instance
from ...host.paths import PathRefused
from ...protocol.display import escaped
from ...protocol.errors import FleetError, InvalidState
from ...store.api import StoreRefused
from .restore import MovedAside, RestorePlan, aside_for, plan_restore, restore

STOP = "fleetctl daemon stop"


class OfflineRestoreReport(msgspec.Struct, kw_only=True):
    """What was done, or would be done: the copy, and where the old state is."""

    restored: bool
    file: str
    database: str
    missions: int
    checkpoints: int
    snapshots: int
    end: int
    last_event_at: str | None
    replaced: str | None
    moved: list[str]
    moved_to: str | None
    warnings: list[str]
    undo: str | None


def run(loaded: Loaded, file: Path, *, preview: bool, as_json: bool) -> int:
    """Restore a copy, or report what that would do; return the exit status."""
    try:
        report = _restore(loaded, file, preview=preview)
    except FleetError as error:
        return _refuse(error, as_json=as_json)
    except (PathRefused, StoreRefused) as error:
        return _refuse(InvalidState(str(error), hint="Nothing was changed."), as_json=as_json)
    except KeyboardInterrupt:
        return _refuse(InvalidState("Interrupted.", hint="Nothing was changed."), as_json=as_json)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        for line in _lines(report):
            print(escaped(line))
    return 0


def _restore(loaded: Loaded, file: Path, *, preview: bool) -> OfflineRestoreReport:
    config = loaded.config
    if config.store:
        raise InvalidState(
            f"The store is {without_password(config.store)}, which cannot be restored from a file.",
            hint="Restore the server with its own tools (pg_restore, or a standby). To use the "
            "copy on this machine alone, remove store from the settings first.",
        )
    try:
        with only_instance(config.database, config.checkpoints, config.socket):
            plan = plan_restore(config, file)
            if preview:
                return _report(plan, aside_for(plan, config.checkpoints), restored=False)
            return _report(plan, restore(loaded, plan), restored=True)
    except AlreadyRunning as error:
        raise InvalidState(
            f"{error}; stop it before a restore: {STOP}",
            hint="Then run the restore again.",
        ) from None


def _report(plan: RestorePlan, aside: MovedAside, *, restored: bool) -> OfflineRestoreReport:
    replaced = aside.database / plan.database.name if aside.database else None
    undo = f"fleetctl restore {shlex.quote(str(replaced))}" if replaced else None
    return OfflineRestoreReport(
        restored=restored,
        file=str(plan.source),
        database=str(plan.database),
        missions=plan.copy.missions,
        checkpoints=len(plan.copy.live("checkpoint")),
        snapshots=len(plan.copy.live("snapshot")),
        end=plan.copy.end,
        last_event_at=plan.copy.last_event_at,
        replaced=str(replaced) if replaced else None,
        moved=plan.moved,
        moved_to=str(aside.checkpoints) if aside.checkpoints else None,
        warnings=plan.warnings,
        # A damaged database could not be put back.
        undo=undo if restored and plan.before is not None else None,
    )


def _lines(report: OfflineRestoreReport) -> list[str]:
    lasting = f"up to event {report.end}" + (
        f" of {report.last_event_at}" if report.last_event_at else ""
    )
    counts = (
        f"missions: {report.missions}, checkpoints: {report.checkpoints},"
        f" snapshots: {report.snapshots}"
    )
    done = report.restored
    lines = [
        f"{'Restored' if done else 'Would restore'} {report.database} from {report.file}:",
        f"  {counts}, {lasting}",
    ]
    if report.replaced:
        lines.append(
            f"The previous database {'is in' if done else 'would be moved to'} {report.replaced}"
        )
    if report.moved_to:
        moved = "were moved" if done else "would be moved"
        lines.append(f"Files newer than the copy {moved} to {report.moved_to}:")
        lines += [f"  {path}" for path in report.moved]
    lines += [f"Warning: {text}" for text in report.warnings]
    if report.undo:
        lines += [f"To undo this, while fleetd is stopped: {report.undo}"]
    if done:
        lines += ["Start fleetd again: fleetctl daemon start"]
    return lines


def _refuse(error: FleetError, *, as_json: bool) -> int:
    if as_json:
        document = {"code": error.code, "message": error.message, **error.data()}
        print(
            msgspec.json.format(msgspec.json.encode({"error": document})).decode(), file=sys.stderr
        )
    else:
        print("Error:", escaped(error.message), file=sys.stderr)
        print("Hint:", escaped(error.hint), file=sys.stderr)
    return error.exit_status
