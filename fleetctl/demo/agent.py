"""The demo's agents, each a process of its own: ``python -m fleetctl.demo.agent <role> <id>``.

They stand in for language models: their plans are fixed, everything they do is real.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from fleetd.host import paths
from fleetd.protocol.records import Message, Sortie
from fleetd.protocol.requests.agent import AgentNote
from fleetd.protocol.requests.lock import LockCheck, LockList
from fleetd.protocol.requests.mission import (
    MissionComplete,
    MissionCreate,
    MissionGet,
    MissionStart,
    NewSortie,
)
from fleetd.protocol.requests.sortie import (
    SortieAssign,
    SortieBlock,
    SortieGet,
    SortieList,
    SortieProgress,
    SortieUnblock,
)

from . import briefing, project
from .cast import DISPATCH, FIRST, GO_AHEAD, ORDERS, QUESTION, RULING, SECOND, WAITING
from .following import Follower
from .worker import Worker

WAKES = ("message_sent", "sortie_completed")


def dispatch(client: Follower, agent_id: str) -> None:
    """Plan the mission, hand its sorties out, answer questions, close it when all is done."""
    mission = client.call(
        MissionCreate(
            title=project.TITLE,
            project_dir=str(Path.cwd()),
            sorties=[NewSortie(title=each.title, files=[each.file]) for each in project.PIECES],
        )
    )
    me = Worker(client, agent_id, "dispatch", mission.id)
    for sortie in client.call(SortieList(mission_id=mission.id)).sorties:
        agent = project.piece_of(sortie.files[0]).agent
        client.call(SortieAssign(sortie_id=sortie.id, agent_id=agent))
    for agent in (FIRST, SECOND):
        me.write(agent, ORDERS)
    client.call(MissionStart(mission_id=mission.id))
    client.until(lambda: _all_done(me), "for all sorties to be completed")
    client.call(MissionComplete(mission_id=mission.id))
    me.leave()


def _all_done(me: Worker) -> bool | None:
    for letter in me.letters():
        if letter.subject == QUESTION:
            me.write(letter.sender, f"Re: {letter.subject}", RULING)
            me.write(FIRST, GO_AHEAD)
        me.acknowledge(letter.id)
    mission = me.client.call(MissionGet(mission_id=me.mission_id))
    return True if mission.completed_sorties == mission.total_sorties else None


def specialist(client: Follower, agent_id: str, mission_id: str) -> None:
    """Work through the sorties that the dispatch assigned."""
    me = Worker(client, agent_id, "specialist", mission_id)
    me.await_letter(lambda letter: letter.subject == ORDERS, "for orders")
    for sortie in me.sorties():
        name = project.piece_of(sortie.files[0]).name
        if name == project.HALF_DONE:
            _begin_and_think(me, sortie)
        if name == project.NEEDS_WORDS:
            me.await_letter(lambda letter: letter.subject == GO_AHEAD, "for words.py")
        if name == project.NEEDS_ALL:
            _wait_for_readability(me, sortie)
        me.do(sortie)
    me.leave()


def _begin_and_think(me: Worker, sortie: Sortie) -> None:
    """Get half way, ask how to go on, and think: here the demo kills this process."""
    piece = me.start(sortie)
    me.lock(piece.file)
    me.edit(piece.file, project.half(piece))
    me.test(piece)
    notes = "The vowel groups are counted, the silent e is open"
    me.client.call(SortieProgress(sortie_id=sortie.id, percent=50, notes=notes, agent_id=me.id))
    me.client.call(
        AgentNote(
            agent_id=me.id,
            last_action=f"Wrote the first half of {piece.file}",
            next_steps=[f"Finish {piece.file} as {DISPATCH} rules about the silent e"],
        )
    )
    me.write(DISPATCH, QUESTION)
    # Nothing ever comes on stdin. It ends when the demo does, so that nobody is left behind.
    sys.stdin.read()
    raise SystemExit(f"{me.id}: was to be killed, but the demo ended first")


def _wait_for_readability(me: Worker, sortie: Sortie) -> None:
    me.start(sortie)
    me.client.call(
        SortieBlock(sortie_id=sortie.id, reason=f"readability.py of {SECOND} is missing")
    )
    me.write(SECOND, WAITING, "report.py calls reading_ease(). Write to me when it works.")
    me.await_letter(_answers_the_wait, "for readability.py")
    me.client.call(SortieUnblock(sortie_id=sortie.id, agent_id=me.id))


def _answers_the_wait(letter: Message) -> bool:
    return letter.subject == f"Re: {WAITING}"


def successor(client: Follower, agent_id: str) -> None:
    """Go on with a killed agent's work, knowing only the recovery prompt that comes on stdin."""
    facts = briefing.read(sys.stdin.read())
    sorties = [client.call(SortieGet(sortie_id=each)) for each in facts.sorties]
    me = Worker(client, agent_id, "specialist", sorties[0].mission_id)
    for sortie in sorties:
        if sortie.files[0] in facts.changed:
            _finish_half(me, sortie, facts)
        elif sortie.status != "completed":
            me.do(sortie)
    for letter in facts.letters:
        if letter.subject == WAITING:
            me.write(letter.sender, f"Re: {letter.subject}", "reading_ease() works.")
        me.acknowledge(letter.id)
    me.leave()


def _finish_half(me: Worker, sortie: Sortie, facts: briefing.Facts) -> None:
    """Write what is missing behind a half-written file, under the lock that came with the work."""
    piece = project.piece_of(sortie.files[0])
    path = me.project / piece.file
    token = facts.tokens[piece.file]
    if not me.client.call(LockCheck(file=str(path), fencing_token=token)).valid:
        raise SystemExit(f"{me.id}: token {token} of the prompt does not guard {piece.file}")
    written = path.read_text()
    me.start(sortie)
    lock = me.client.call(LockList(held_by=me.id, file=str(path))).locks[0]
    me.finish(sortie, lock, written + project.rest(piece, written, facts.mail))


PROGRAMS = {"dispatch": dispatch, "specialist": specialist, "successor": successor}


def main(arguments: Sequence[str]) -> int:
    """Run one agent until its work is done."""
    program, agent_id, *rest = arguments
    with Follower(paths.socket_path()) as client:
        client.follow(WAKES)
        PROGRAMS[program](client, agent_id, *rest)  # type: ignore[operator]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
