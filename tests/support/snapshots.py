"""What runs' snapshots say, one line each, so that a test can write them by hand."""

from fleetd.protocol.snapshots import CommandOutcome, SnapshotDocument


def line(snapshot: SnapshotDocument, *, timed: bool = True) -> str:
    """Return source and status, the step by its place, the pressure, and the outcomes.

    Where nobody tells how long a call lasted that is measured, and ``timed`` leaves it out.
    """
    step = snapshot.step_state
    place = f"{step.step_ordinal} {step.step_status}" if step.step_status else "no step"
    said = [
        f"{snapshot.source} {snapshot.status}",
        place,
        snapshot.context_digest.window_pressure,
        *(outcome(each, timed) for each in snapshot.command_outcomes),
    ]
    return " | ".join(said)


def outcome(told: CommandOutcome, timed: bool) -> str:
    """Return an outcome as its name, its result and, if it is known, how long it took."""
    lasted = f" {told.duration_ms} ms" if timed and told.duration_ms else ""
    return f"{told.name} {told.result}{lasted}"
