"""What agents of Claude Code send to their hooks, as JSON objects."""

from collections.abc import Callable
from functools import partial

Payload = Callable[[str, str, str], dict[str, object]]
"""Makes a payload of a session, its directory, and the id of a tool call."""


def edit(session: str, place: str, call_id: str, event: str = "PostToolUse") -> dict[str, object]:
    """Return what is sent after an edit of a file that only this session has."""
    change = {"file_path": f"{place}/{session}.py", "content": "x" * 400}
    return _tool(event, "Write", change, session, place, call_id)


def _tool(
    event: str, tool: str, given: dict[str, str], session: str, place: str, call_id: str
) -> dict[str, object]:
    call = {"tool_name": tool, "tool_input": given, "tool_use_id": call_id}
    return _hook(event, session, place) | call


def _prompt(session: str, place: str, call_id: str) -> dict[str, object]:
    return _hook("UserPromptSubmit", session, place) | {"prompt": f"Continue with {call_id}."}


def _turn_end(session: str, place: str, call_id: str) -> dict[str, object]:
    # Two equal ones within two seconds would count as one.
    return _hook("Stop", session, place) | {"last_assistant_message": f"Done with {call_id}."}


def _hook(event: str, session: str, place: str) -> dict[str, object]:
    return {"session_id": session, "cwd": place, "hook_event_name": event}


def _around(tool: str, given: dict[str, str]) -> tuple[Payload, ...]:
    return tuple(partial(_tool, event, tool, given) for event in ("PreToolUse", "PostToolUse"))


HOOKS: dict[str, tuple[Payload, ...]] = {
    "after an edit, as above": (edit,),
    "before and after an edit": (partial(edit, event="PreToolUse"), edit),
    "before and after a read": _around("Read", {"file_path": "src/parser.py"}),
    "before and after a command": _around("Bash", {"command": "python -m pytest -q tests/unit"}),
    "a prompt and the end of its turn": (_prompt, _turn_end),
}
"""The hooks that an agent sends in turn, by what they are about."""
