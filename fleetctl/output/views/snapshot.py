"""The page of ``fleetctl snapshot show``."""

from collections.abc import Iterator, Sequence

from fleetd.protocol.display import duration

from ...client.models import (
    Artifact,
    CommandOutcome,
    ContextDigest,
    Snapshot,
    SourceDetail,
    StepState,
)
from .. import console


def show_snapshot(snapshot: Snapshot, folder: str) -> None:
    """Print everything a person wants to know about a snapshot; ``folder`` is its run's."""
    console.lines(_head(snapshot))
    console.lines(_step(snapshot.step_state))
    console.lines(_resume(snapshot.step_state))
    console.lines(_context(snapshot))
    console.lines(_commands(snapshot.command_outcomes))
    console.lines(_files(snapshot, folder))


def _head(snapshot: Snapshot) -> Iterator[str]:
    yield f"Snapshot: {snapshot.snapshot_id}"
    yield f"Run: {snapshot.run_id}"
    if snapshot.agent_id:
        yield f"Agent: {snapshot.agent_id}"
    if snapshot.note:
        yield f"Note: {snapshot.note}"
    yield f"Created: {console.ago(snapshot.created_at)}"
    yield f"Source: {snapshot.source}"
    for each in snapshot.source_details:
        yield f"Joined by: {joined(each)}"
    yield f"Status: {snapshot.status}"


def joined(detail: SourceDetail) -> str:
    """Return who joined a snapshot, how often, and when last: ``timer, 2 times, last at …``."""
    who = f" of {detail.agent_id}" if detail.agent_id else ""
    times = console.plural(detail.count, "time")
    at = "" if console.humane() else "at "
    return f"{detail.source}{who}, {times}, last {at}{console.ago(detail.last_at)}"


def step_told(ordinal: int | None, status: str | None) -> str:
    """Return where in its plan a run is: ``2 in_progress``; nothing where nobody said."""
    return " ".join(filter(None, (str(ordinal or ""), status)))


def _step(step: StepState) -> Iterator[str]:
    kept = step.todo_compliance
    yield ""
    yield "Step:"
    yield f"  Plan: {console.path(step.plan_path or 'None')}"
    told = step_told(step.step_ordinal, step.step_status)
    yield f"  Step: {'  '.join(filter(None, (told, step.step_id))) or 'None'}"
    yield f"  Plan kept: {kept.result} (checked {console.ago(kept.checked_at)})"
    for violation in kept.violations:
        yield f"    - {violation}"


def _resume(step: StepState) -> Iterator[str]:
    hints = step.resume_hints
    yield ""
    yield "Resume:"
    yield f"  Eligible: {'yes' if hints.eligible else 'no'} ({hints.reason_code})"
    yield "  Next Actions:"
    for action in hints.next_actions or ["None"]:
        yield f"    - {action}"


def _context(snapshot: Snapshot) -> Iterator[str]:
    digest = snapshot.context_digest
    yield ""
    yield "Context:"
    yield f"  Window Pressure: {digest.window_pressure}{_filled(snapshot)}"
    yield f"  Dropped Items: {digest.dropped_items}"
    yield f"  Policy Profile: {digest.policy_profile}"
    yield from _protected(digest)


def _filled(snapshot: Snapshot) -> str:
    used, size = snapshot.window_tokens, snapshot.window_size
    if used is None:
        return ""
    return f" ({used} of {size} tokens, {used * 100 // size}%)" if size else f" ({used} tokens)"


def _protected(digest: ContextDigest) -> Iterator[str]:
    yield f"  Protected Artifacts ({len(digest.protected_artifacts)}):"
    for each in digest.protected_artifacts:
        yield f"    - {each}"


def _commands(outcomes: Sequence[CommandOutcome]) -> Iterator[str]:
    yield ""
    yield f"Commands ({len(outcomes)}):"
    for each in outcomes:
        code = f"  [{each.reason_code}]" if each.reason_code else ""
        time = took(each.duration_ms)
        yield f"  {each.result:<4}  {each.kind:<13}  {time:>8}  {each.name}{code}"
        if each.summary:
            yield f"        {each.summary}"


def took(ms: int) -> str:
    """Return how long a command took, as people say it; a dash where nobody measured."""
    if ms < 1_000:
        return f"{ms} ms" if ms else "-"
    return f"{ms / 1_000:.1f} s" if ms < 60_000 else duration(ms)


def _files(snapshot: Snapshot, folder: str) -> Iterator[str]:
    integrity = snapshot.integrity
    yield ""
    yield f"Integrity: {integrity.algorithm} {integrity.digest} (format {integrity.format_version})"
    yield f"Stored In: {', '.join(snapshot.storage_locations) or 'None'}"
    # The path is that of this machine; another has its own.
    place = f"on {snapshot.file_on}" if snapshot.file_on else f"in {console.path(folder)}"
    yield f"Files ({len(snapshot.artifacts)}) {place}:"
    for artifact in snapshot.artifacts:
        yield f"  {_form(artifact, snapshot.compressed_at)}"
        yield f"    sha256 {artifact.digest}"


def _form(artifact: Artifact, compressed_at: str | None) -> str:
    # Of a file that was compressed, the checksum of its first form is kept.
    absent = "compressed since" if compressed_at else "not written yet"
    told = f"{console.path(artifact.path)}  {console.size(artifact.size_bytes)}"
    return told if artifact.present else f"{told}  ({absent})"
