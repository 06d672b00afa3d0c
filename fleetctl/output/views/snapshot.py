"""The page of ``fleetctl snapshot show``."""

from fleetd.protocol.display import duration

from ...client.models import Artifact, CommandOutcome, Snapshot, SourceDetail
from .. import console


def show_snapshot(snapshot: Snapshot, folder: str) -> None:
    """Print everything a person wants to know about a snapshot; ``folder`` is its run's."""
    step, digest, integrity = snapshot.step_state, snapshot.context_digest, snapshot.integrity
    kept, hints = step.todo_compliance, step.resume_hints
    in_plan = (step_text(step.step_ordinal, step.step_status), step.step_id)
    checksum = f"{integrity.algorithm} {integrity.digest}"
    # The path applies to this machine; another one has its own.
    place = f"on {snapshot.file_on}" if snapshot.file_on else f"in {console.path(folder)}"
    console.lines(
        [
            f"Snapshot: {snapshot.snapshot_id}",
            f"Run: {snapshot.run_id}",
            *([f"Agent: {snapshot.agent_id}"] if snapshot.agent_id else []),
            *([f"Note: {snapshot.note}"] if snapshot.note else []),
            f"Created: {console.ago(snapshot.created_at)}",
            f"Source: {snapshot.source}",
            *(f"Joined by: {source_line(each)}" for each in snapshot.source_details),
            f"Status: {snapshot.status}",
            "",
            "Step:",
            f"  Plan: {console.path(step.plan_path or 'None')}",
            f"  Step: {'  '.join(filter(None, in_plan)) or 'None'}",
            f"  Plan kept: {kept.result} (checked {console.ago(kept.checked_at)})",
            *(f"    - {violation}" for violation in kept.violations),
            "",
            "Resume:",
            f"  Eligible: {'yes' if hints.eligible else 'no'} ({hints.reason_code})",
            "  Next Actions:",
            *(f"    - {action}" for action in hints.next_actions or ["None"]),
            "",
            "Context:",
            f"  Window Pressure: {digest.window_pressure}{_filled(snapshot)}",
            f"  Dropped Items: {digest.dropped_items}",
            f"  Policy Profile: {digest.policy_profile}",
            f"  Protected Artifacts ({len(digest.protected_artifacts)}):",
            *(f"    - {each}" for each in digest.protected_artifacts),
            "",
            f"Commands ({len(snapshot.command_outcomes)}):",
            *(line for each in snapshot.command_outcomes for line in _outcome(each)),
            "",
            f"Integrity: {checksum} (format {integrity.format_version})",
            f"Stored In: {', '.join(snapshot.storage_locations) or 'None'}",
            f"Files ({len(snapshot.artifacts)}) {place}:",
            *(
                line
                for each in snapshot.artifacts
                for line in (_file(each, snapshot.compressed_at), f"    sha256 {each.digest}")
            ),
        ]
    )


def source_line(detail: SourceDetail) -> str:
    """Return who joined a snapshot, how often, and when last: ``timer, 2 times, last at …``."""
    suffix = f" of {detail.agent_id}" if detail.agent_id else ""
    times = console.plural(detail.count, "time")
    at = "" if console.human_readable() else "at "
    return f"{detail.source}{suffix}, {times}, last {at}{console.ago(detail.last_at)}"


def step_text(ordinal: int | None, status: str | None) -> str:
    """Return a run's place in its plan: ``2 in_progress``; nothing when it is unknown."""
    return " ".join(filter(None, (str(ordinal or ""), status)))


def _filled(snapshot: Snapshot) -> str:
    used, size = snapshot.window_tokens, snapshot.window_size
    if used is None:
        return ""
    return f" ({used} of {size} tokens, {used * 100 // size}%)" if size else f" ({used} tokens)"


def _outcome(each: CommandOutcome) -> list[str]:
    code = f"  [{each.reason_code}]" if each.reason_code else ""
    line = f"  {each.result:<4}  {each.kind:<13}  {took(each.duration_ms):>8}  {each.name}{code}"
    return [line, f"        {each.summary}"] if each.summary else [line]


def took(ms: int) -> str:
    """Return how long a command took, in words; a dash when it was not measured."""
    if ms < 1_000:
        return f"{ms} ms" if ms else "-"
    return f"{ms / 1_000:.1f} s" if ms < 60_000 else duration(ms)


def _file(artifact: Artifact, compressed_at: str | None) -> str:
    line = f"  {console.path(artifact.path)}  {console.size(artifact.size_bytes)}"
    # For a compressed file, the checksum is that of its original form.
    absent = "compressed since" if compressed_at else "not written yet"
    return line if artifact.present else f"{line}  ({absent})"
