"""How a mission ended, in words. Without msgspec: commands load it at start.

Only a person calls a mission off. One that was closed with its session goes on with it.
"""

from typing import cast, get_args

from .patterns import ClosedReason, MissionStatus

# What the reason of an event begins with that told of it before events said why.
WITH_SESSION = "Closed with its session"
_SHORT: dict[str, str] = {"session": "closed", "merged": "merged"}
_WHY: dict[str, ClosedReason] = {"closed": "session", "merged": "merged"}
# Every word that ``state`` returns.
STATES = (*get_args(MissionStatus), *_WHY)


def state(status: MissionStatus, why: ClosedReason | None) -> str:
    """Return a mission's status in a word: what was closed with its session is ``closed``."""
    return _SHORT.get(why or "", status) if status == "cancelled" else status


def of_state(word: str) -> tuple[MissionStatus, ClosedReason | None]:
    """Return the status and the reason of what ``state`` tells in a word."""
    why = _WHY.get(word)
    return ("cancelled", why) if why else (cast("MissionStatus", word), None)


def ended(status: MissionStatus, why: ClosedReason | None) -> str:
    """Return what a mission is, as in ``Mission msn-1 is closed with its session``."""
    if status != "cancelled" or why in (None, "person"):
        return status
    return merged() if why == "merged" else WITH_SESSION.lower()


def merged(into: str | None = None) -> str:
    """Return that a mission went into another one."""
    return f"merged into {into or 'another mission'}"


def left_open(left: int, total: int) -> str:
    """Return what of a mission is left for the session that resumes it."""
    return f"{left} of {total} {'sortie' if total == 1 else 'sorties'} open; resumes with it"


def standing(
    status: MissionStatus,
    why: ClosedReason | None,
    total: int,
    left: int | None = None,
    into: str | None = None,
) -> str:
    """Return how a mission stands, for its page; ``left`` are its open sorties, where known.

    ``into`` is the mission that one went into.
    """
    if why == "merged":
        return merged(into) if status == "cancelled" else f"{status}; {merged(into)}"
    text = ended(status, why)
    if why != "session":
        return text
    if status != "cancelled":
        return f"{text}; resumes with its session"
    return f"{text}; resumes with it" if left is None else f"{text}, {left_open(left, total)}"
