"""One line for an agent: what it does or needs, since when, and where."""

from __future__ import annotations

from ...output import console
from ..tables import Column

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...client.models import AgentState

NEEDS = {
    "permission": "needs permission",
    "question": "asks a question",
    "plan_approval": "needs approval",
    "failed": "failed",
    "limit": "reached a limit",
    "lost": "lost",
    "finished": "finished",
    "background": "in background",
}
STYLES = {
    **dict.fromkeys(("needs permission", "asks a question", "needs approval"), "yellow"),
    **dict.fromkeys(("failed", "reached a limit", "lost"), "red"),
    **dict.fromkeys(("works", "in background"), "green"),
}
# The directory yields first: a name is needed whole, to copy it, and the text says what is asked.
COLUMNS = (
    Column(""),
    Column("", styles=STYLES),
    Column("", matters=4, times="ago"),
    Column("", matters=3, cut="end", least=8, yields=True),
    Column("", matters=5, cut="end", least=18),
)


_ASKING = ("permission", "question", "plan_approval")


def state_of(agent: AgentState) -> str:
    """Return what an agent does, in a word or two."""
    if agent.needs != "none":
        return NEEDS.get(agent.needs, agent.needs)
    return "works" if agent.status == "active" else agent.status


def project_of(agent: AgentState) -> str:
    """Return the name of the directory that an agent works in, with its branch."""
    place = (agent.worktree or agent.cwd or "").rstrip("/").rpartition("/")[2]
    return f"{place} ({agent.branch})" if place and agent.branch else place


def doing_of(agent: AgentState) -> str:
    """Return what an agent needs in words, else its step and what it did last."""
    # The end of a limit comes first: a narrow line shows only the beginning.
    parts = [f"ends {console.ago(agent.reset_at)}"] if agent.reset_at else []
    if agent.text:
        parts.append(agent.text)
    return " · ".join([*(parts or _action_of(agent)), *_running_of(agent)]) or agent.mission or ""


def action_of(agent: AgentState) -> str:
    """Return the step of an agent, what it did last and how much runs for it."""
    return " · ".join([*_action_of(agent), *_running_of(agent)])


def _action_of(agent: AgentState) -> list[str]:
    parts = []
    if agent.step:
        parts.append(f"{agent.step.number}/{agent.step.total} {agent.step.title}")
    if agent.doing and agent.doing.what != "prompt":
        parts.append(_inside(agent, agent.doing.text))
    return parts


def _running_of(agent: AgentState) -> list[str]:
    count = len(agent.running) + agent.running_more
    return [f"{count} running"] if count else []


def action_label(agent: AgentState, status: str) -> str:
    """Return the label of an agent's last action, which may still be running."""
    ended = agent.doing is None or agent.doing.ended or status == "lost"
    return "Last action" if ended else "Doing now"


def _inside(agent: AgentState, text: str) -> str:
    """Return an agent's last action, with a file relative to where it works."""
    for place in (agent.cwd, agent.worktree):
        if place and text.startswith(f"{place}/"):
            return text[len(place) + 1 :]
    return text


def standing_of(
    status: str, needs: str | None, text: str | None, since: str | None
) -> list[tuple[str, str | None]]:
    """Return the state of an agent as named lines; ``since`` is in words.

    Only a need that stops the agent counts as a wait: its last answer, or why it ended, does not.
    """
    if status == "lost":
        reason = f" ({text})" if text else ""
        return [("Status", f"lost since {since}{reason}" if since else f"lost{reason}")]
    asks = needs in _ASKING
    label = "Waits for" if asks else "Reason" if needs in ("failed", "limit") else "Last answer"
    return [
        ("Status", console.agent_state(status, needs)),
        ("Waits since" if asks else "Since", since),
        (label, text),
    ]


def work_of(agent: AgentState) -> list[tuple[str, str | None]]:
    """Return what an agent works on, as named lines: the last thing it did, its step, its files."""
    did = plan = None
    if doing := agent.doing:
        did = f"{doing.what}: {_inside(agent, doing.text)} ({console.ago(doing.since)})"
    if step := agent.step:
        plan = f"{step.number} of {step.total}: {step.title}"
    files = f"{agent.files_changed} in the last hour" if agent.files_changed else None
    window = f"{agent.window_tokens:,} tokens" if agent.window_tokens is not None else None
    if window and agent.window_size:
        window += f" of {agent.window_size:,}"
    return [
        (action_label(agent, agent.status), did),
        ("Plan", plan),
        ("Files changed", files),
        ("Window", window),
        ("Branch", agent.branch),
        ("Worktree", agent.worktree if agent.worktree != agent.cwd else None),
    ]


def runs_for(agent: AgentState) -> list[str]:
    """Return what runs for an agent, a line each, and when it was last seen."""
    lines = []
    for each in agent.running:
        parts = [f"{each.kind} {each.id}", each.told, f"last seen {console.ago(each.seen_at)}"]
        output = f"output in {console.path(each.output)}" if each.output else None
        lines.append(", ".join(filter(None, (*parts, output))))
    return [*lines, *([f"and {agent.running_more} more"] if agent.running_more else [])]


def row_of(agent: AgentState) -> Sequence[str]:
    """Return the cells of an agent's line."""
    where, what = project_of(agent), doing_of(agent)
    return (agent.agent_id, state_of(agent), agent.since, where, what)
