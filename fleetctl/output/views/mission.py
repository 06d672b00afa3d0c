"""The page of a mission, and its words in a list."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetd.protocol import endings
from fleetd.protocol.patterns import CLOSED_SORTIE

from .. import console, tables
from ..tables import Column

if TYPE_CHECKING:
    from ...client.models import Mission, MissionMoment, Sortie, SortieState

SORTIES = (
    Column(""),
    Column("", matters=3, styles=console.STATES),
    Column("", matters=1),
    Column("", matters=2, cut="middle"),
    Column("", cut="end", least=16),
)


def titled(mission: "Mission") -> str:
    """Return a mission's title, marked when the mission was created for a session."""
    return console.titled(mission.title, automatic=mission.origin == "session")


def state(mission: "Mission") -> str:
    """Return a mission's status in a word."""
    return endings.state(mission.status, mission.closed_reason)


def show_mission(
    mission: "Mission", directory: str | None, sorties: "Sequence[Sortie] | None" = None
) -> None:
    """Print a mission, with its sorties where they are known."""
    left = None
    if sorties is not None:
        left = sum(each.status not in CLOSED_SORTIE for each in sorties)
    done = f"({mission.completed_sorties}/{mission.total_sorties} sorties complete)"
    standing = endings.standing(
        mission.status, mission.closed_reason, mission.total_sorties, left, mission.merged_into
    )
    console.fields(
        (
            ("Mission", mission.id),
            ("Title", titled(mission)),
            ("Description", mission.description),
            ("Status", standing),
            ("Priority", mission.priority),
            ("Progress", f"{mission.progress_percent}% {done}"),
            ("Directory", directory),
            ("Briefing", "off: hooks give none" if mission.briefing == "off" else None),
            ("Created", console.ago(mission.created_at)),
            ("Started", console.ago(mission.started_at)),
            ("Ended", console.ago(mission.completed_at)),
            ("Last activity", console.ago(mission.last_activity_at)),
        )
    )
    if sorties:
        _show_sorties(sorties)


def _show_sorties(sorties: "Sequence[SortieState]") -> None:
    console.heading(f"Sorties ({len(sorties)})")
    rows = [
        (each.id, each.status, f"{each.progress}%", each.assigned_to or "", each.title)
        for each in sorties
    ]
    tables.table(SORTIES, rows, indent="  ")


def show_moment(moment: "MissionMoment") -> None:
    """Print a mission as it was at a moment."""
    mission = moment.mission
    done = f"({moment.completed_sorties}/{moment.total_sorties} sorties complete)"
    source = moment.checkpoint_id or "its creation"
    console.fields(
        (
            ("Mission", moment.mission_id),
            ("Moment", f"{console.ago(moment.timestamp)}, after event {moment.seq}"),
            ("Made from", f"{source} and the events after it"),
            ("Title", console.titled(mission.title, automatic=mission.automatic)),
            ("Description", mission.description),
            ("Status", endings.state(mission.status, mission.closed_reason)),
            ("Priority", mission.priority),
            ("Progress", f"{moment.progress_percent}% {done}"),
        )
    )
    if moment.sorties:
        _show_sorties(moment.sorties)
    for title, lines in (
        ("Locks", [f"{console.path(lock.file)}  {lock.held_by}" for lock in moment.locks]),
        (
            "Messages that waited",
            [
                f"{each.id}  {each.sender} to {', '.join(each.to)}: {each.subject}"
                for each in moment.messages
            ],
        ),
        (
            "Notes",
            [
                f"{each.id}  {each.kind}: {each.text}"
                for each in mission.notes
                if not each.withdrawn_at
            ],
        ),
    ):
        if lines:
            console.heading(f"{title} ({len(lines)})")
            for line in lines:
                console.flow("  ", line)
