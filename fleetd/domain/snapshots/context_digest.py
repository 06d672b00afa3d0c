"""How full the window of a run is, and what must not be lost from it; must not write.

Source: snapshot-lifecycle, ``context_digest``.
"""

from collections.abc import Iterable, Sequence

import msgspec

from ...config import Config, Limits, Retention
from ...protocol.requests.snapshot import DeclaredDigest
from ...protocol.snapshots import MOST_COUNTED, ContextDigest
from ...protocol.types import WindowPressure
from ..checkpoints.codec import digest_of
from ..core.context import Context
from ..core.tx import Row, Tx
from .plan_steps import Step

MOST_ARTIFACTS = 50
MEDIUM_PERCENT, HIGH_PERCENT = 50, 80
DEFAULT = "default"
_NOTHING = DeclaredDigest()
_canonical = msgspec.json.Encoder(order="sorted").encode


def pressure(session: Row | None) -> WindowPressure:
    """Return how full the window of a session is, as far as its harness told; low by default."""
    if session is None:
        return "low"
    if session["context"] == "compacting":
        return "high"
    used, size = session["window_tokens"], session["window_size"]
    if used is None or not size:
        return "low"
    if used * 100 < size * MEDIUM_PERCENT:
        return "low"
    return "medium" if used * 100 < size * HIGH_PERCENT else "high"


def protected(tx: Tx, ctx: Context, agent_id: str | None, step: Step | None) -> list[str]:
    """Return the files that an agent has locked, then those of the step it is at."""
    if agent_id is None:
        return []
    rows = tx.all(
        "SELECT file FROM locks WHERE held_by = :agent AND status = 'active' AND expires_at > :now"
        " ORDER BY acquired_at, id",
        agent=agent_id,
        now=ctx.now,
    )
    return _distinct((row["file"] for row in rows), step.files if step and step.open else ())


def _distinct(*parts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(entry for part in parts for entry in part if entry))


def profile(config: Config) -> str:
    """Return the name of the limits and retention in force; one's own go by their digest."""
    if (config.retention, config.limits) == (Retention(), Limits()):
        return DEFAULT
    return f"custom-{digest_of(_canonical([config.retention, config.limits]))[:8]}"


def context_digest(
    ctx: Context,
    declared: DeclaredDigest | None,
    *,
    told: WindowPressure,
    artifacts: Sequence[str],
    dropped: int,
) -> ContextDigest:
    """Return what is declared, and what is known of the rest.

    ``dropped`` are entries that this snapshot's bounds left out elsewhere.
    """
    given = declared or _NOTHING
    every = artifacts if given.protected_artifacts is None else given.protected_artifacts
    kept = list(every[:MOST_ARTIFACTS])
    counted = (given.dropped_items or 0) + dropped + len(every) - len(kept)
    return ContextDigest(
        window_pressure=given.window_pressure or told,
        protected_artifacts=kept,
        dropped_items=min(counted, MOST_COUNTED),
        policy_profile=given.policy_profile or profile(ctx.config),
    )
