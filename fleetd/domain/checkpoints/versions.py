"""Checkpoint versions: older layouts, and how each becomes the next one.

A layout is a plain dict here, because the records know only the present one.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from ...protocol.errors import Corrupt, FleetError, Incompatible
from ...protocol.records import CHECKPOINT_VERSION
from ...protocol.timestamps import iso, to_ms

Plain = dict[str, Any]
_NUMBERS = re.compile(r"(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})")
# Sorts checkpoints from before the log ahead of all events, by their time.
_BEFORE_THE_LOG = 10**15


class VersionLayout(msgspec.Struct, frozen=True, kw_only=True):
    """An older layout: the fields of its content, and how to write it in the next version.

    ``sealed`` says whether every checkpoint of that version carries a checksum.
    """

    fields: frozenset[str]
    sealed: bool
    becomes: str
    migrate: Callable[[Plain], Plain]


def _from_0_9(content: Plain) -> Plain:
    """Add what the first layout did not have."""
    return _in_our_form(content, "timestamp") | {
        "sorties": [
            {"position": place, "progress": 100 if sortie["status"] == "completed" else 0}
            | _in_our_form(sortie, "started_at")
            for place, sortie in enumerate(content["sorties"])
        ],
        "active_locks": [_in_our_form(lock, "acquired_at") for lock in content["active_locks"]],
        "pending_messages": [_in_our_form(x, "sent_at") for x in content["pending_messages"]],
        "recovery_context": _in_our_form(content["recovery_context"], "last_activity_at"),
        "mission": None,
        "seq": to_ms(content["timestamp"]) - _BEFORE_THE_LOG,
        "undo": False,
    }


def _in_our_form(record: Plain, name: str) -> Plain:
    """Return a record with a time in the one format that sorts as text."""
    return record | {name: iso(to_ms(record[name]))} if record.get(name) else record


LAYOUTS = {
    "0.9.0": VersionLayout(
        fields=frozenset(
            {
                *("id", "mission_id", "timestamp", "trigger", "trigger_details", "created_by"),
                *("progress_percent", "sorties", "active_locks", "pending_messages"),
                *("recovery_context", "version"),
            }
        ),
        sealed=False,
        becomes="1.0.0",
        migrate=_from_0_9,
    ),
}


def layout_of(version: object, where: str, **values: Any) -> VersionLayout | None:
    """Return the layout of an older version, None for the present one.

    Raises Corrupt for a value that is no version, Incompatible for a newer or unknown version.
    """
    if version == CHECKPOINT_VERSION:
        return None
    if isinstance(version, str) and version in LAYOUTS:
        return LAYOUTS[version]
    raise _refusal(version, where, values)


def _refusal(version: object, where: str, values: Plain) -> FleetError:
    numbers = _numbers(version)
    if numbers is None:
        return Corrupt(
            f"{where} has no version, but {version!r} in its place.",
            reason="has no version",
            hint="fleetctl checkpoint verify --all --repair restores it from the other copy.",
            **values,
        )
    newer = numbers > (_numbers(CHECKPOINT_VERSION) or ())
    advice = (
        "Install the version of fleetd that wrote it, or a newer one."
        if newer
        else "Open it with the version of fleetd that wrote it."
    )
    return Incompatible(
        f"{where} has checkpoint version {version}; this fleetd reads {CHECKPOINT_VERSION}"
        f" and converts {', '.join(LAYOUTS)} up to it.",
        hint=advice,
        version=version,
        **values,
    )


def _numbers(version: object) -> tuple[int, ...] | None:
    """Return a semantic version as numbers: as text, 0.10.0 would come before 0.9.0."""
    found = _NUMBERS.fullmatch(version) if isinstance(version, str) else None
    return tuple(map(int, found.groups())) if found else None


def migrated(content: Plain, layout: VersionLayout) -> Plain:
    """Return the content of an older layout in the present one.

    Raises ValueError when it does not even match its own layout.
    """
    while True:
        try:
            content = layout.migrate(content) | {"version": layout.becomes}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not in the layout for this version: {error!r}") from error
        if layout.becomes == CHECKPOINT_VERSION:
            return content
        layout = LAYOUTS[layout.becomes]


def migration_warning(version: str) -> str:
    """Return the warning that a migrated checkpoint carries."""
    return f"it was written in checkpoint version {version} and brought to {CHECKPOINT_VERSION}"
