"""Steps of a plan, as the planning tools of Claude and those like it write them; nothing else."""

import re
from typing import Any

from .fields import cut, table, text
from .report import Payload, PlanItem, Planned, PlanStatus
from .tool_calls import ToolCall

ITEM_CHARS = 500
ITEMS = 1_000
_WORDS = ("content", "text", "title", "subject", "step", "description")
LISTS = frozenset(("todowrite", "settodolist", "todolist", "writetodos", "updatetodo"))

_STATUSES: dict[str, PlanStatus] = {
    "pending": "pending",
    "open": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
    "complete": "completed",
    "done": "completed",
    "deleted": "dropped",
    "cancelled": "dropped",
    "canceled": "dropped",
}
# Droid writes its list as text: "1. [in_progress] Write the parser".
_LINE = re.compile(r"\s*\d+\.\s*\[(\w+)\]\s*(\S.*)")
# Copilot writes a checklist in Markdown: "- [x] Write the parser".
_BOX = re.compile(r"\s*[-*+]\s*\[(.)\]\s*(\S.*)")
_BOXES = {"x": "completed", "X": "completed", "-": "in_progress", "~": "in_progress"}


def planned(call: ToolCall) -> tuple[Planned, ...]:
    """Return what a finished call of a planning tool did to the plan; empty for other tools."""
    if call.kind in LISTS:
        return listed(call.given.get("todos"), whole=call.given.get("merge") is not True)
    if call.kind == "taskcreate":
        return _created(call)
    return _updated(call) if call.kind == "taskupdate" else ()


def task(payload: Payload, status: PlanStatus) -> tuple[Planned, ...]:
    """Return what an event about one task tells; it says the same as the tool's own event."""
    named, subject = _id(payload, "task_id"), text(payload, "task_subject", most=ITEM_CHARS)
    if named is None and subject is None:
        return ()
    return _one(PlanItem(text=subject or "", status=status, id=named))


def listed(told: Any, *, whole: bool = True) -> tuple[Planned, ...]:
    """Return the plan that a list of steps is, also one in text; empty for what is no list."""
    if isinstance(told, str):
        told = _lines(told)
    if not isinstance(told, list):
        return ()
    items = tuple(item for each in told[:ITEMS] if (item := _item(each)) is not None)
    return (Planned(items=items, whole=whole),)


def _lines(told: str) -> list[dict[str, str]]:
    """Return the steps of a list that is written as text."""
    steps = []
    for line in told.splitlines()[:ITEMS]:
        if (step := _LINE.fullmatch(line)) is not None:
            steps.append({"status": step[1], "content": step[2]})
        elif (step := _BOX.fullmatch(line)) is not None:
            steps.append({"status": _BOXES.get(step[1], "pending"), "content": step[2]})
    return steps


def _item(told: Any) -> PlanItem | None:
    if not isinstance(told, dict):
        return None
    words = text(told, *_WORDS, most=ITEM_CHARS)
    status = _STATUSES.get(text(told, "status") or "", "pending")
    return None if words is None else PlanItem(text=words, status=status, id=_id(told, "id"))


def _created(call: ToolCall) -> tuple[Planned, ...]:
    made = table(call.result, "task")
    words = text(call.given, "subject", most=ITEM_CHARS) or text(made, "subject", most=ITEM_CHARS)
    if words is None:
        return ()
    return _one(PlanItem(text=words, status="pending", id=_id(made, "id")))


def _updated(call: ToolCall) -> tuple[Planned, ...]:
    """Return the change of one task; without a new status nothing is known that would matter."""
    named = _id(call.given, "taskId", "task_id") or _id(call.result, "taskId")
    status = _STATUSES.get(text(call.given, "status") or "")
    if named is None or status is None or call.result.get("success") is False:
        return ()
    words = text(call.given, "subject", most=ITEM_CHARS) or ""
    return _one(PlanItem(text=words, status=status, id=named))


def _one(item: PlanItem) -> tuple[Planned, ...]:
    """Return what is told of one task: Claude keeps one list of them for the whole session."""
    return (Planned(items=(item,), whole=False, shared=True),)


def _id(source: Payload, *names: str) -> str | None:
    for name in names:
        value = source.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return cut(str(value), 20) if abs(value) < 2**63 else None
    return text(source, *names)
