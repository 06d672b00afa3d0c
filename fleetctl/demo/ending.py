"""Reads the final state that the checks look at; must not judge it."""

from pathlib import Path

import msgspec

from fleetd.protocol.records import Agent, Checkpoint, Event, Lock, Message, Mission, Sortie
from fleetd.protocol.requests.agent import AgentList
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointList
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.lock import LockList
from fleetd.protocol.requests.message import MessageList
from fleetd.protocol.requests.mission import MissionGet
from fleetd.protocol.requests.sortie import SortieList

from ..client import Fleet

PAGE = 1_000


class Seen(msgspec.Struct, kw_only=True):
    """What the operator saw on the way; all of it must become true."""

    tests_failed_before: bool = False
    tests_pass: bool = False
    all_committed: bool = False
    checkpoints_intact: bool = False
    stale_token_refused: bool = False
    new_token_accepted: bool = False


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the checks look at."""

    mission: Mission
    sorties: list[Sortie]
    agents: list[Agent]
    locks: list[Lock]
    messages: list[Message]
    checkpoints: list[Checkpoint]
    events: list[Event]
    files: frozenset[str]
    """Ids of the checkpoints that have a file."""
    seen: Seen


def read(client: Fleet, mission_id: str, files: Path, seen: Seen) -> Ending:
    """Ask the daemon for everything it knows; ``files`` is its directory of checkpoints."""
    page = client.call(CheckpointList(mission_id=mission_id, limit=PAGE))
    checkpoints = [client.call(CheckpointGet(checkpoint_id=each.id)) for each in page.checkpoints]
    return Ending(
        mission=client.call(MissionGet(mission_id=mission_id)),
        sorties=client.call(SortieList(mission_id=mission_id)).sorties,
        agents=client.call(AgentList(mission_id=mission_id)).agents,
        locks=client.call(LockList()).locks,
        messages=client.call(MessageList(mission_id=mission_id)).messages,
        checkpoints=checkpoints,
        events=client.call(EventList(mission_id=mission_id, limit=PAGE)).events,
        files=frozenset(file.stem for file in (files / mission_id).glob("chk-*.json")),
        seen=seen,
    )
