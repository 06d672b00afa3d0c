"""A session as its agent's window shows it: texts, calls, and their results."""

from collections.abc import Iterator
from typing import Any

from .session import MAIN, Session, Step

_COMPACTIONS = frozenset(("PreCompact", "PreCompress", "session.compacting"))
_OF_A_SUBAGENT = {"agent_id", "parent_id"}
_PROMPTS = frozenset(("UserPromptSubmit", "BeforeAgent", "chat.message"))
_ANSWERS = {
    "Stop": "last_assistant_message",
    "AfterAgent": "prompt_response",
    "session.idle": "last_message",
}
_CALLS = frozenset(("PostToolUse", "PostToolUseFailure", "AfterTool"))
_OPENCODES = frozenset(("tool.execute.after", "tool.failed"))
# The input and the output of a tool is the first of these fields, else everything.
_GIVEN = ("command", "plan", "todos", "prompt")
_CAME_BACK = ("stdout", "llmContent", "output", "content", "preview", "diff")


def transcript(session: Session) -> str:
    """Return the whole session as plain text, without the compaction at its end."""
    return "\n\n".join(_parts(session)) + "\n"


def dump(session: Session, budget: int) -> str:
    """Return the last characters of it: the cheapest text for an agent."""
    return transcript(session)[-budget:]


def _parts(session: Session) -> Iterator[str]:
    # Gemini CLI announces a compaction before every request: only the last one took place.
    ends = [n for n, step in enumerate(session.steps) if _compacts(step)]
    for step in session.steps[: ends[-1]]:
        if step.window != MAIN:
            continue
        if step.said is not None:
            yield f"Agent: {step.said}"
        elif step.shown is not None:
            yield step.shown
        elif step.hook is not None:
            # A subagent works in a window of its own.
            own = not step.hook.keys() & _OF_A_SUBAGENT
            if own and (part := _part(_event(step.hook), step.hook)):
                yield part


def _compacts(step: Step) -> bool:
    return step.window == MAIN and step.hook is not None and _event(step.hook) in _COMPACTIONS


def _event(hook: dict[str, Any]) -> str:
    return str(hook.get("hook_event_name") or hook.get("event"))


def _part(event: str, hook: dict[str, Any]) -> str:
    if event in _PROMPTS:
        return f"User: {hook['prompt']}"
    if event in _ANSWERS:
        return f"Agent: {hook[_ANSWERS[event]]}"
    if event in _CALLS:
        return _called(hook, "tool_name", "tool_input", "tool_response")
    if event in _OPENCODES:
        return _called(hook, "tool", "args", "metadata")
    if event == "PermissionRequest":
        return f"Asked for permission: {_text(hook['tool_input'], _GIVEN)}"
    return ""


def _called(hook: dict[str, Any], name: str, given: str, result: str) -> str:
    back = hook["error"] if "error" in hook else _text(hook.get(result), _CAME_BACK)
    return f"{hook[name]}: {_text(hook[given], _GIVEN)}\n{back}"


def _text(value: Any, names: tuple[str, ...]) -> str:
    """Return the text of a value, without the fields that only programs read."""
    if isinstance(value, dict):
        for name in (*names, "file", "text", "step", "description", "subject"):
            if value.get(name):
                return _text(value[name], names)
        return " ".join(f"{name}: {_text(each, names)}" for name, each in value.items())
    if isinstance(value, list):
        return "\n".join(_item(each, names) for each in value)
    return str(value)


def _item(value: Any, names: tuple[str, ...]) -> str:
    if isinstance(value, dict) and "status" in value:
        text = value.get("content") or value.get("step") or value.get("description")
        return f"[{value['status']}] {text}"
    return _text(value, names)
