"""Recovery: choose what to restore, restore it, show the outcome."""

from argparse import Namespace
from collections.abc import Iterator
from typing import NamedTuple

from fleetd.protocol.errors import (
    InvalidParams,
    InvalidState,
)
from fleetd.protocol.patterns import CandidateReason

from ..args import threshold_ms
from ..client import Fleet
from ..client.models import (
    CheckpointGet,
    CheckpointList,
    Detection,
    Mission,
    MissionGet,
    RecoveryCandidate,
    RecoveryDetect,
    RestoreResult,
)
from ..context import selected
from ..output import console

QUESTION = "Proceed with recovery?"
FOUND: dict[CandidateReason | None, str] = {
    "silent": "Found stale mission:",
    "agent_lost": "Found mission of a lost agent:",
}


class RestoreTarget(NamedTuple):
    """The mission to bring back, and the checkpoint that would do it.

    ``reason`` is why it waits for recovery, None for one that does not. ``others`` are all missions
    of its directory that wait, when there are several.
    """

    mission_id: str
    title: str
    last_activity_at: str | None
    checkpoint_id: str
    progress_percent: int
    reason: CandidateReason | None
    others: tuple[RecoveryCandidate, ...] = ()


def choose(client: Fleet, args: Namespace) -> RestoreTarget:
    """Return what to restore: what was named, else what the daemon says is meant.

    Raises InvalidState when there is nothing to restore, NotFound for an id that does not exist,
    InvalidParams for a checkpoint that is another mission's, and when missions wait elsewhere only.
    """
    if args.checkpoint:
        return _named_checkpoint(client, args.checkpoint, args.mission)
    if args.mission:
        return _mission(client, client.call(MissionGet(mission_id=args.mission)))
    found = selected(
        client,
        "recovery",
        agent=args.agent,
        take_over_from=args.take_over_from,
        threshold_ms=threshold_ms(),
    )
    if found.candidates:
        return candidate_target(found.candidates[0], tuple(found.candidates))
    return _mission(client, found.mission)


def detect(client: Fleet, mission: str | None = None) -> Detection:
    """Return the silent missions, by the threshold of this shell when it names one."""
    return client.call(RecoveryDetect(mission_id=mission, threshold_ms=threshold_ms()))


def candidate_target(
    candidate: RecoveryCandidate, candidates: tuple[RecoveryCandidate, ...] = ()
) -> RestoreTarget:
    """Return a silent mission as a target; ``candidates`` are all that were found."""
    return RestoreTarget(
        candidate.mission_id,
        candidate.mission_title,
        candidate.last_activity_at,
        candidate.checkpoint_id or "",
        candidate.checkpoint_progress or 0,
        candidate.reason,
        others=candidates if len(candidates) > 1 else (),
    )


def _mission(client: Fleet, mission: Mission) -> RestoreTarget:
    silent = detect(client, mission.id).candidates
    if silent and silent[0].checkpoint_id:
        return candidate_target(silent[0])
    # The summaries: the newest one may be damaged, and the daemon then takes the one before.
    page = client.call(CheckpointList(mission_id=mission.id, limit=1_000))
    latest = next((summary for summary in page.checkpoints if not summary.undo), None)
    if latest is None:
        raise InvalidState(
            f"No checkpoint found for mission: {mission.id}",
            hint=f"Take one: fleetctl checkpoint --mission {mission.id}",
        )
    return RestoreTarget(
        mission.id,
        mission.title,
        mission.last_activity_at,
        latest.id,
        latest.progress_percent,
        None,
    )


def _named_checkpoint(client: Fleet, given: str, mission: str | None) -> RestoreTarget:
    checkpoint = client.call(CheckpointGet(checkpoint_id=given))
    console.warn(*checkpoint.warnings)
    found = client.call(MissionGet(mission_id=checkpoint.mission_id))
    if mission and client.call(MissionGet(mission_id=mission)).id != found.id:
        raise InvalidParams(
            f"Checkpoint {checkpoint.id} belongs to mission {found.id}, not to {mission}.",
            hint="Leave --mission out, or name another checkpoint.",
        )
    return RestoreTarget(
        found.id,
        found.title,
        found.last_activity_at,
        checkpoint.id,
        checkpoint.progress_percent,
        "silent" if detect(client, found.id).candidates else None,
    )


def announcement(target: RestoreTarget) -> list[str]:
    """Return the lines that say what is about to be restored."""
    return [
        *choices(target),
        f"{FOUND.get(target.reason, 'Resuming mission:')} {target.title}",
        f"Last activity: {console.ago(target.last_activity_at or 'never')}",
        f"Checkpoint: {target.checkpoint_id} ({target.progress_percent}%)",
    ]


def choices(target: RestoreTarget) -> Iterator[str]:
    """Return the lines that list what else could be meant, none when nothing could."""
    if not target.others:
        return
    yield f"{len(target.others)} missions of this directory wait for recovery:"
    for other in target.others:
        checkpoint = other.checkpoint_id or "no checkpoint"
        yield (
            f"  {other.mission_id}  last activity {console.ago(other.last_activity_at)}  "
            f"{checkpoint}  {other.mission_title}"
        )
        if other.lost_agents:
            yield f"    {console.lost_agents(other)}"
    yield "Taking the one that was active last; --mission <id> takes another."
    yield ""


def show(outcome: RestoreResult) -> None:
    """Print the outcome of a recovery, or of its dry run."""
    console.line("[DRY RUN] Would restore:" if outcome.dry_run else "Recovery complete:")
    restored = outcome.restored
    console.line(f"- Sorties: {restored.sorties}")
    console.line(f"- Locks: {restored.locks}")
    console.line(f"- Messages: {restored.messages}")
    if outcome.dry_run:
        console.lines(_meant(outcome))
    changes = outcome.would_restore or outcome.changed
    console.bullets(
        "Changes", [f"{each.what} {each.id}: {each.before} -> {each.after}" for each in changes]
    )
    console.bullets("Kept", [f"{each.sortie_id}: {each.reason}" for each in outcome.kept])
    console.bullets("Released locks", outcome.released_locks)
    console.bullets("Errors", outcome.errors)
    console.bullets("Warnings", outcome.warnings)
    if outcome.undo_checkpoint_id:
        print()
        undo = f"fleetctl resume --checkpoint {outcome.undo_checkpoint_id} --rewind"
        console.line(f"To undo this: {undo}")
    if not outcome.dry_run:
        print()
        show_prompt(outcome.prompt)


def _meant(outcome: RestoreResult) -> list[str]:
    """Return the lines that say what a dry run was about."""
    agent = outcome.agent_id or "none named (--agent says who is briefed)"
    if outcome.take_over_from:
        agent += f", takes over from {outcome.take_over_from}"
    return [
        f"Mission: {outcome.mission_id}  {outcome.mission_title}",
        f"Directory: {outcome.project_dir or 'none'}",
        f"Agent: {agent}",
    ]


def show_prompt(prompt: str) -> None:
    """Print the briefing as it is, without what a terminal would obey."""
    print("--- Recovery Context ---")
    print(console.clean_block(prompt))


def show_outcome(args: Namespace, outcome: RestoreResult) -> int:
    """Print the outcome as JSON or text; lock conflicts that are left are no failure."""
    return console.show(args, outcome, show)
