"""What an agent is told when something is refused: what happened, and what to do next."""

from datetime import UTC, datetime
from typing import Any

from fleetd.protocol.display import clean, clean_path, quote
from fleetd.protocol.durations import duration
from fleetd.protocol.errors import FleetError, LockConflict, NotFound, Unavailable

_AWAY = (
    "Go on with your own work without it; nothing that it remembers is lost. Ask your user to run:"
    " fleetctl daemon start. Then call again."
)
# What a hint for persons or programs speaks of.
_FOR_OTHERS = ("fleetctl", "rpc.")


def told(error: FleetError) -> str:
    """Return the text of a tool's error: one line, whatever it repeats of what others wrote."""
    return clean(_told(error))


def _told(error: FleetError) -> str:
    if isinstance(error, LockConflict) and isinstance(
        held := error.values.get("existing_lock"), dict
    ):
        return _conflict(held, error.values.get("file", held.get("file")))
    if isinstance(error, Unavailable):
        return f"{error.message.partition(' Start it with')[0]} {_AWAY}"
    return " ".join(filter(None, (_sentence(error.message), _next(error))))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _next(error: FleetError) -> str:
    """Return what to do next, by tools: whoever reads this does not type commands."""
    if not any(each in error.hint for each in _FOR_OTHERS):
        return error.hint
    if isinstance(owner := error.values.get("assigned_to"), str):
        return f"Leave it to {owner}, or ask {owner} with send."
    if isinstance(error, NotFound):
        return "mission, inbox and agents show what there is."
    return ""


def _conflict(held: dict[str, Any], file: object) -> str:
    """Say who holds a file, by the name by which it was asked for."""
    holder, file = held.get("held_by"), clean_path(str(file))
    purpose = quote(str(held.get("purpose")))
    return (
        f"{file} is held by {holder} ({purpose}) {until(held.get('expires_at'))}."
        f" Do not edit it. Work on something else, call lock with wait_s to wait for it, or ask"
        f" {holder} with send."
    )


def until(expires_at: str | None) -> str:
    """Return when a lease ends, as a time of day and as how long that is from now."""
    if expires_at is None:
        return "for an unknown time"
    left = datetime.fromisoformat(expires_at) - datetime.now(UTC)
    seconds = max(0, round(left.total_seconds()))
    return f"until {expires_at[11:19]}Z ({duration(seconds * 1_000)})"
