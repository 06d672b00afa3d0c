"""Recovery at the terminal: the announcement of a restore, and its outcome."""

from collections.abc import Iterator
from typing import NamedTuple

from fleetd.protocol.patterns import CandidateReason

from ..client.models import RecoveryCandidate, RestoreResult
from ..output import console

QUESTION = "Proceed with recovery?"
FOUND: dict[CandidateReason | None, str] = {
    "silent": "Found stale mission:",
    "agent_lost": "Found mission of a lost agent:",
}


class RestoreTarget(NamedTuple):
    """The mission to restore, and the checkpoint to restore it from.

    ``reason`` is why it waits for recovery, None if it does not. ``others`` are all missions of its
    directory that wait, when there are several.
    """

    mission_id: str
    title: str
    last_activity_at: str | None
    checkpoint_id: str
    progress_percent: int
    reason: CandidateReason | None
    others: tuple[RecoveryCandidate, ...] = ()


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


def announcement(target: RestoreTarget) -> list[str]:
    """Return the lines that announce what will be restored."""
    return [
        *alternatives(target),
        f"{FOUND.get(target.reason, 'Resuming mission:')} {target.title}",
        f"Last activity: {console.ago(target.last_activity_at or 'never')}",
        f"Checkpoint: {target.checkpoint_id} ({target.progress_percent}%)",
    ]


def alternatives(target: RestoreTarget) -> Iterator[str]:
    """Yield the lines that list other possible missions, none when there are none."""
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


def show_outcome(outcome: RestoreResult) -> None:
    """Print the outcome of a recovery, or of its dry run."""
    console.line("[DRY RUN] Would restore:" if outcome.dry_run else "Recovery complete:")
    restored = outcome.restored
    console.line(f"- Sorties: {restored.sorties}")
    console.line(f"- Locks: {restored.locks}")
    console.line(f"- Messages: {restored.messages}")
    if outcome.dry_run:
        agent = outcome.agent_id or "none named (--agent says who is briefed)"
        if outcome.take_over_from:
            agent += f", takes over from {outcome.take_over_from}"
        console.line(f"Mission: {outcome.mission_id}  {outcome.mission_title}")
        console.line(f"Directory: {outcome.project_dir or 'none'}")
        console.line(f"Agent: {agent}")
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
        print("--- Recovery Context ---")
        print(console.clean_block(outcome.prompt))
