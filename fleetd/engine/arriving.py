"""Whether a store is the one in use, and what a machine does for one that has just come to it."""

from ..domain.system import relocation
from ..store.api import StoreRefused
from .engine import Engine


async def arrive(engine: Engine) -> None:
    """Settle a store that has just come; raises StoreRefused for one that was moved away."""
    found = await engine.write(relocation.arrive)
    if (moved := found.moved_to) is not None:
        raise StoreRefused(
            f"{engine.store.where} was moved to {moved.where} at {moved.at}. {_settle(moved.where)}"
            " (fleetctl config shows what is set), or go on with the old one: fleetctl migrate"
            " --undo"
        )
    if (moving := found.moving_to) is not None:
        raise StoreRefused(
            f"{engine.store.where} was being moved to {moving.where} at {moving.at}, and nobody saw"
            " the end of it. Give the same command again: fleetctl migrate; or go on with this"
            " one: fleetctl migrate --undo"
        )
    for mission_id, directory in found.unnamed.items():
        if places := await engine.projects.places(directory):
            await engine.write(relocation.name_project, mission_id, places[0])


def _settle(where: str) -> str:
    """Say what is to be set; a database of this machine is named by no setting of the store."""
    if "://" in where:
        return "Set store to where it is now"
    return "Take the setting store, or FLEET_DATABASE_URL, away"
