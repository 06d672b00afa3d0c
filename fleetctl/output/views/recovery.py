"""How a mission that waits for recovery is told, and the command for it."""

from ...client.models import RecoveryCandidate


def lost(candidate: RecoveryCandidate) -> str:
    """Return who left work open, with the reason as ``fleetctl status --json`` has it."""
    return f"agent_lost: {', '.join(candidate.lost_agents)}"


def resume_command(candidate: RecoveryCandidate, agent: str | None = None) -> str:
    """Return what brings a mission back, for ``agent``, by default for whoever waits.

    Where others are at work again, they must not notice.
    """
    told = f"fleetctl resume --mission {candidate.mission_id}"
    if who := agent or candidate.agent_id:
        told += f" --agent {who}"
    return f"{told} --scope agent" if candidate.agent_id else told
