"""One mission of ever more sorties: costs that may grow linearly, and costs that must not."""

import itertools

import msgspec

from ..fleet import Fleet
from ..measure import Operation
from .asking import Cost, cost
from .process import Process


class Mission(msgspec.Struct, frozen=True):
    """The costs of a mission of so many sorties, by name, and the length of its prompt."""

    sorties: int
    costs: dict[str, Cost]
    prompt_chars: int


def mission(fleet: Fleet, process: Process, sorties: int, fsync: Operation) -> Mission:
    """Measure a mission; each of its recoveries finds a change."""
    made = fleet.mission(sorties)
    listed = fleet.call("sortie.list", mission_id=made)["sorties"]
    first = next(each for each in listed if each["assigned_to"] == "dispatch")["id"]
    fleet.call("sortie.start", sortie_id=first, agent_id="dispatch")
    percent = itertools.cycle(range(1, 20))

    def progress() -> None:
        fleet.call("sortie.progress", sortie_id=first, percent=next(percent))

    def restore() -> None:
        progress()
        fleet.call("recovery.restore", mission_id=made, rewind=True)

    asked = {
        "sortie.progress": progress,
        "event.append": lambda: fleet.call("event.append", type="file_read", mission_id=made),
        "mission.get": lambda: fleet.call("mission.get", mission_id=made),
        "mission.update": lambda: fleet.call("mission.update", mission_id=made, title="Port"),
        "sortie.list": lambda: fleet.call("sortie.list", mission_id=made),
        "checkpoint.create": lambda: fleet.checkpoint(made, wait=True),
        "recovery.restore": restore,
        "mission.create": lambda: fleet.mission(sorties),
    }
    costs = {name: cost(fleet, process, ask, fsync) for name, ask in asked.items()}
    prompt = fleet.call("recovery.context", mission_id=made)["prompt"]
    return Mission(sorties=sorties, costs=costs, prompt_chars=len(prompt))
