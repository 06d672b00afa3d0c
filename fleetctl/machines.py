"""What the machines are called that share a store; must not print."""

from .client import Fleet
from .client.models import SystemStatus


def names(client: Fleet) -> dict[str, str]:
    """Return what the machines are called, by their ids; empty where one has the store alone."""
    return {each.machine_id: each.name for each in client.call(SystemStatus()).machines}


def named(known: dict[str, str], machine: str | None) -> str:
    """Return what a machine is called, its id when nobody knows, nothing for none."""
    return known.get(machine, machine) if machine else ""
