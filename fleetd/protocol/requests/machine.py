"""Requests about the machines that share a store."""

from typing import ClassVar

from ..records import Record
from ..request import Mutation
from ..types import MachineId


class ForgottenMachine(Record, frozen=True, kw_only=True):
    """A machine that was forgotten, and its agents that are lost since then."""

    machine_id: str
    name: str
    lost_agents: list[str]


class MachineForget(Mutation[ForgottenMachine], frozen=True):
    """Forget a machine that left or is lost: its agents are lost, and their work can be resumed.

    A machine that returns is a machine again with its next heartbeat.
    """

    method: ClassVar[str] = "machine.forget"
    machine_id: MachineId
