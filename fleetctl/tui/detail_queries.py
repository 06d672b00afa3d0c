"""What each page says, and what it asks the daemon for, which changes nothing; knows no screen."""

from collections.abc import Callable
from typing import Any

from fleetd.protocol.errors import FleetError

from ..client import Fleet
from ..client.models import CheckpointCompare, CheckpointGet, RecoveryContextGet
from . import details
from .mission_list import View
from .state import Picture

Ask = Callable[[Fleet], Any]
Tell = Callable[[Any], str]


def a_checkpoint(checkpoint_id: str) -> tuple[str, Ask, Tell]:
    """Return title, question and page of a checkpoint."""

    def ask(client: Fleet) -> Any:
        return client.call(CheckpointGet(checkpoint_id=checkpoint_id))

    return f"Checkpoint {checkpoint_id}", ask, details.checkpoint


def a_prompt(title: str, **named: str | None) -> tuple[str, Ask, Tell]:
    """Return title, question and page of a recovery prompt."""

    def ask(client: Fleet) -> Any:
        return client.call(RecoveryContextGet(**named))  # type: ignore[arg-type]

    return f"Prompt of {title}", ask, details.prompt


def a_difference(before: str, after: str | None) -> tuple[str, Ask, Tell]:
    """Return title, question and page of what differs between two checkpoints, or one and now."""

    def ask(client: Fleet) -> Any:
        return client.call(CheckpointCompare(before=before, after=after))

    return f"From {before} to {after or 'now'}", ask, details.difference


def known(name: str, record: Any, picture: Picture, view: View) -> tuple[str, str]:
    """Return title and text of a page for which nobody has to be asked."""
    told: dict[str, Callable[[], str]] = {
        "missions": lambda: details.mission(record, view),
        "sorties": lambda: details.sortie(record, view),
        "agents": lambda: details.agent(record, picture, view),
        "locks": lambda: details.lock(record, picture, view),
        "mail": lambda: details.letter(record, view),
        "events": lambda: details.event(record, picture, view),
    }
    return _TITLES[name], told[name]()


_TITLES = {
    "missions": "Mission",
    "sorties": "Sortie",
    "agents": "Agent",
    "locks": "Lock",
    "mail": "Letter",
    "events": "Event",
}


def answered(ask: Ask) -> Any:
    """Return what the daemon answers, or the error that it, or its absence, is."""
    try:
        with Fleet() as client:
            return ask(client)
    except FleetError as error:
        return error


def page(tell: Tell, answer: Any) -> str:
    """Return the text of a page; an error is told like any command tells it."""
    if isinstance(answer, FleetError):
        hint = f"\nHint: {answer.hint}" if answer.hint else ""
        return f"Error: {answer.message}{hint}"
    return tell(answer)
