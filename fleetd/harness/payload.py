"""Readers of hook payloads: fields, tool calls and plans, as Claude and similar CLIs write them.

Vendors change the shapes. A field of the wrong type counts as absent: a hook must never fail
because of a field that it can do without.
"""

import os.path
import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import msgspec

from .report import (
    CommitReverted,
    Happenings,
    Payload,
    PlanItem,
    PlanLink,
    Planned,
    PlanProposed,
    PlanStatus,
    QuestionAsked,
    ToolFinished,
    ToolStarted,
    Unfit,
    WindowUsed,
)

COMMAND_CHARS = 2_000
ERROR_CHARS = 2_000
MESSAGE_CHARS = 4_000
PROMPT_CHARS = 60_000
PATH_CHARS = 4_096
WORD_CHARS = 200
# A longer first line of a command's output says nothing about how it ended.
FIRST_LINE_CHARS = 100
VERSION_CHARS = 64
# No window is larger, whatever a payload says.
MOST_TOKENS = 1_000_000_000

# Half of a surrogate pair, as JSON and JavaScript can write it: a text with one cannot be stored.
_HALF = re.compile(r"[\ud800-\udfff]")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
# A terminal's escape sequence for a colour or a movement of the cursor.
_COLOUR = re.compile(r"\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]")


def text(payload: Payload, *names: str, most: int = WORD_CHARS) -> str | None:
    """Return the first of these fields that is a text and not blank, cut to ``most``."""
    for name in names:
        value = payload.get(name)
        if isinstance(value, str) and (found := cut(value, most)).strip():
            return found
    return None


def need(payload: Payload, *names: str) -> str:
    """Return a field that the payload cannot do without; raises Unfit."""
    value = text(payload, *names)
    if value is None:
        raise Unfit(f"it has no {' or '.join(names)}")
    return value


def event_name(payload: Payload, given: str | None) -> str:
    """Return the name of the event, the payload's own or else the one ``given``; raises Unfit."""
    named = text(payload, "hook_event_name") or cut(given or "", WORD_CHARS)
    return named or need(payload, "hook_event_name")


def table(payload: Payload, name: str) -> Payload:
    """Return a field that is an object, an empty one where it is not."""
    value = payload.get(name)
    return value if isinstance(value, dict) else {}


def whole(payload: Payload, name: str) -> int | None:
    """Return a field that is a number of at least 0, rounded."""
    value = payload.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return round(value)


def decoded(given: str, otherwise: Any = None) -> Any:
    """Return the decoded value of a JSON text, ``otherwise`` where it is not JSON."""
    try:
        return msgspec.json.decode(given)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return otherwise


def window_used(source: Payload, tokens: str, size: str) -> tuple[WindowUsed, ...]:
    """Return how full a window is by the fields of these names, empty where they do not show it."""
    used, room = (whole(source, name) for name in (tokens, size))
    if used is None or used > MOST_TOKENS:
        return ()
    known = room is not None and 0 < room <= MOST_TOKENS
    return (WindowUsed(tokens=used, size=room if known else None),)


def path(given: Any, cwd: str | None) -> str | None:
    """Return a file's path made absolute against ``cwd``; None for an unusable path."""
    if not isinstance(given, str) or not given.strip() or len(given) > PATH_CHARS:
        return None
    if "\0" in given or _HALF.search(given):
        return None
    if given.startswith("/"):
        return os.path.normpath(given)
    return os.path.normpath(f"{cwd}/{given}") if cwd and cwd.startswith("/") else None


def cut(value: str, most: int) -> str:
    """Return a text of at most ``most`` characters, without control characters."""
    clean = _UNPRINTABLE.sub("", value[:most])
    return clean if len(value) <= most else clean[: most - 1] + "…"


def cut_output(output: str, most: int) -> str:
    """Return what a command printed, at most ``most`` characters: its first line and its end.

    The end matters most: there test programs report what failed. It begins with a whole line.
    """
    output = output.strip()
    if len(output) > most:
        first = output[: FIRST_LINE_CHARS + 1].partition("\n")[0]
        head = f"{first}\n…\n" if len(first) <= FIRST_LINE_CHARS else "…\n"
        end = output[len(head) - most :]
        output = head + (end.partition("\n")[2] or end)
    return cut(_COLOUR.sub("", output), most)


# Names are compared without case and underlines: Bash, run_shell_command, RunShellCommand.
SHELLS = frozenset(
    (
        *("bash", "shell", "execute", "runcommand"),
        *("runshellcommand", "runterminalcommand", "runterminalcmd"),
    )
)
EDITORS = frozenset(
    (
        *("edit", "multiedit", "write", "notebookedit", "create"),
        *("editfile", "writefile", "replace", "searchreplace", "strreplace", "strreplacefile"),
        *("writetofile", "replacefilecontent", "multireplacefilecontent"),
        *("delete", "deletefile"),
    )
)
# Tools that read one file.
READERS = frozenset(("read", "readfile", "view", "viewfile", "notebookread"))
_FILE_FIELDS = ("file_path", "notebook_path", "path", "absolute_path", "filePath", "target_file")
# Tools whose purpose is to wait for the user.
_ASKING = frozenset(("askuserquestion", "requestuserinput", "askuser", "question"))
_PLANNING = frozenset(("exitplanmode",))
# Tools that start a subagent.
_STARTING = frozenset(("agent", "task"))
PATCHER = "applypatch"
_PATCH_FIELDS = ("command", "patch", "patchText", "input")
PATCH_CHARS = 1_000_000
# Git reports a commit in the first lines that it prints.
OUTPUT_CHARS = 20_000
# Git's own line about the commit that a revert made: "[main 1a2b3c4] Revert "Add retries"".
_REVERTED = re.compile(
    r'^(?:Output: )?\[[^\]\n]{1,300} [0-9a-f]{4,64}\] (Revert|Reapply) "(.{1,500})"$', re.MULTILINE
)
_TWICE = re.compile(r'Revert "(.{1,500})"')
REVERTED = 20
# How much of a plan is searched for the line that says what it is about.
PLAN_CHARS = 10_000
_RESULTS = ("tool_response", "tool_result", "tool_output")
FILES = 200
NAMELESS = "unknown"
_NOT_A_LETTER = re.compile(r"[^a-z]")
# Spaces at a line's end are left to strip(): a pattern for both takes the square of their number.
_LINE = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool, as the payload of any of its events describes it.

    ``silent`` means that the harness has no event for failures: without an exit code, the outcome
    is unknown.
    """

    payload: Payload
    cwd: str | None
    silent: bool = False

    @property
    def tool(self) -> str:
        """Return the name of the tool."""
        return text(self.payload, "tool_name") or NAMELESS

    @property
    def kind(self) -> str:
        """Return the name in the form that the sets of names use."""
        return _NOT_A_LETTER.sub("", self.tool.lower())

    @property
    def given(self) -> Payload:
        """Return the arguments of the call."""
        return table(self.payload, "tool_input")

    @property
    def result(self) -> Payload:
        """Return the result of the tool, empty when it is no object."""
        return next((found for name in _RESULTS if (found := table(self.payload, name))), {})

    @property
    def call_id(self) -> str | None:
        """Return the harness's id of the call, the same at its start and at its end."""
        return text(self.payload, "tool_use_id", "tool_call_id")

    @property
    def command(self) -> str | None:
        """Return the command line of a shell's call, None for all other tools."""
        return text(self.given, "command", most=COMMAND_CHARS) if self.kind in SHELLS else None

    @property
    def output(self) -> str:
        """Return what the tool printed, empty where the harness does not report it."""
        return _first_text(self.payload, *_RESULTS) or _first_text(self.result, "stdout", "output")

    @property
    def edits(self) -> tuple[str, ...]:
        """Return the files that an editing tool changes, as absolute paths."""
        if self.kind == PATCHER:
            return patched(self._patch, self.cwd)
        if self.kind not in EDITORS:
            return ()
        for source in (self.given, self.result):
            if file := path(text(source, *_FILE_FIELDS, most=PATH_CHARS + 1), self.cwd):
                return (file,)
        return ()

    @property
    def reads(self) -> str | None:
        """Return the file that a reading tool was asked for, as an absolute path."""
        if self.kind not in READERS:
            return None
        return path(text(self.given, *_FILE_FIELDS, most=PATH_CHARS + 1), self.cwd)

    @property
    def _patch(self) -> str:
        given = self.payload.get("tool_input")
        if isinstance(given, str):
            return given[:PATCH_CHARS]
        return text(self.given, *_PATCH_FIELDS, most=PATCH_CHARS) or ""


Handler = Callable[[ToolCall], Happenings]


def happenings_of(handlers: Mapping[str, Handler], event: str, call: ToolCall) -> Happenings:
    """Return what an event reports; nothing for an event without a handler."""
    return handlers[event](call) if event in handlers else ()


def tool_started(call: ToolCall) -> Happenings:
    """Report that a tool call begins; some tools wait for the user."""
    description = call.kind in _STARTING and text(call.given, "description", most=WORD_CHARS)
    started = ToolStarted(call.tool, call.call_id, call.command, call.edits, description or None)
    return (started, *waits_for_user(call))


def waits_for_user(call: ToolCall) -> Happenings:
    """Return what a tool asks the user, empty for tools that do not."""
    if call.kind in _PLANNING:
        plan = text(call.given, "plan", "plan_path", "plan_filename", most=PLAN_CHARS)
        return (PlanProposed(plan=_without_headings(plan)),)
    if call.kind not in _ASKING:
        return ()
    asked = call.given.get("questions")
    first = asked[0] if isinstance(asked, list) and asked else call.given
    source = first if isinstance(first, dict) else call.given
    return (QuestionAsked(question=text(source, "question", "prompt", most=MESSAGE_CHARS)),)


# The arguments that name the subject of a call that is no command and no edit.
_SUBJECT_FIELDS = ("url", "query", "pattern")
_DESCRIBING = ("description", "prompt", "skill", "name")


def _without_headings(plan: str | None) -> str | None:
    """Return a plan from its first line that is no heading; a plan of headings only stays whole."""
    lines = (plan or "").splitlines()
    first = (
        n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")
    )
    start = next(first, 0)
    return cut("\n".join(lines[start:]), MESSAGE_CHARS) or None


def asked_for(call: ToolCall) -> str | None:
    """Return what a call is to do, as a person is asked for it: its tool and its subject.

    None where the payload names neither.
    """
    named = text(call.given, *_SUBJECT_FIELDS, most=MESSAGE_CHARS)
    file = next(iter(call.edits), None)
    if file is None and named is None:
        file = path(text(call.given, *_FILE_FIELDS, most=PATH_CHARS + 1), call.cwd)
    if file and call.cwd:
        file = file.removeprefix(f"{call.cwd.rstrip('/')}/")
    about = call.command or file or named or text(call.given, *_DESCRIBING, most=MESSAGE_CHARS)
    tool = "" if call.tool == NAMELESS else call.tool
    return cut(": ".join(filter(None, (tool, about))), MESSAGE_CHARS) or None


def finished(call: ToolCall) -> ToolFinished:
    """Return the end of a call that the harness does not report as a failure."""
    passed, error = _outcome(call)
    return ToolFinished(
        tool=call.tool,
        call_id=call.call_id,
        command=call.command,
        edited=(call.edits or _changed_by_command(call)) if passed is not False else (),
        passed=passed,
        error=error,
        duration_ms=whole(call.payload, "duration_ms"),
        background=passed is None and _is_background(call),
        read=call.reads if passed is not False else None,
    )


def tool_failed(call: ToolCall) -> Happenings:
    """Report that a tool call failed, or that the user stopped it."""
    error = _error(call.payload) or "it failed without a reason"
    if call.payload.get("is_interrupt") is True:
        error = cut_output(f"stopped by the user: {error}", ERROR_CHARS)
    return (
        ToolFinished(
            tool=call.tool,
            call_id=call.call_id,
            command=call.command,
            passed=False,
            error=error,
            duration_ms=whole(call.payload, "duration_ms"),
        ),
    )


def reverted(call: ToolCall, output: str | None = None) -> tuple[CommitReverted, ...]:
    """Return the commits that a command reverted, as Git printed it; empty for other commands."""
    if call.command is None or "revert" not in call.command:
        return ()
    printed = (call.output if output is None else output)[:OUTPUT_CHARS]
    found = []
    for line in islice(_REVERTED.finditer(printed), REVERTED):
        # An older Git prints "Revert "Revert "Add retries""" for a commit that is applied again.
        twice = _TWICE.fullmatch(line[2]) if line[1] == "Revert" else None
        subject = twice[1] if twice else line[2]
        found.append(CommitReverted(subject, again=line[1] == "Reapply" or twice is not None))
    return tuple(found)


def _outcome(call: ToolCall) -> tuple[bool | None, str | None]:
    """Return whether a call passed, and what was wrong; None for what is unknown (yet)."""
    result = call.result
    if result.get("interrupted") is True:
        return False, "interrupted before it ended"
    if _is_background(call):
        return None, None
    code = result.get("exit_code", result.get("exitCode"))
    if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**31:
        # An exit status with a meaning for the harness, such as grep's 1, is no failure.
        passed = code == 0 or text(result, "returnCodeInterpretation") is not None
        printed = f"{call.output.rstrip()}\n{_first_text(result, 'stderr')}"
        return passed, None if passed else ended_with(f"Exit code {code}", printed)
    return (None if call.silent else True), None


def ended_with(status: str, output: str) -> str:
    """Return how a command ended, with what it printed last."""
    return cut_output(f"{status}\n{output.strip()}", ERROR_CHARS)


def _is_background(call: ToolCall) -> bool:
    named = text(call.result, "backgroundTaskId") is not None
    return named or call.payload.get("is_backgrounded") is True


def _error(payload: Payload) -> str | None:
    names = ("error", "message")
    inner = table(payload, "error")
    return (
        cut_output(_first_text(payload, *names) or _first_text(inner, *names), ERROR_CHARS) or None
    )


def _first_text(source: Payload, *names: str) -> str:
    """Return the first of these fields that is a text and not blank, unchanged."""
    texts = (value for name in names if isinstance(value := source.get(name), str))
    return next((value for value in texts if value.strip()), "")


def _changed_by_command(call: ToolCall) -> tuple[str, ...]:
    """Return the files that a shell command changed, where the harness tracked them.

    Changes that it saw while other commands ran beside this one belong to none for certain.
    """
    seen = table(call.result, "bashEditDiff")
    named = seen.get("changedFiles")
    if call.kind not in SHELLS or seen.get("shared") is True or not isinstance(named, list):
        return ()
    files = (path(each, call.cwd) for each in named[:FILES])
    return tuple(dict.fromkeys(file for file in files if file is not None))


def patched(patch: str, cwd: str | None) -> tuple[str, ...]:
    """Return the files that a patch changes, as absolute paths, each once."""
    named = (path(line[1].rstrip(), cwd) for line in _LINE.finditer(patch))
    return tuple(dict.fromkeys(file for file in named if file is not None))[:FILES]


ITEM_CHARS = 500
ITEMS = 1_000
# How many tasks that one waits for, or that wait for it, are read from a list.
LINKS = 200
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
_STEP_LINE = re.compile(r"\s*\d+\.\s*\[(\w+)\]\s*(\S.*)")
# Copilot writes a checklist in Markdown: "- [x] Write the parser".
_BOX = re.compile(r"\s*[-*+]\s*\[(.)\]\s*(\S.*)")
_BOXES = {"x": "completed", "X": "completed", "-": "in_progress", "~": "in_progress"}


def planned(call: ToolCall) -> tuple[Planned, ...]:
    """Return what a finished call of a planning tool did to the plan; empty for other tools."""
    if call.kind in LISTS:
        return listed(call.given.get("todos"), whole=call.given.get("merge") is not True)
    if call.kind == "taskcreate":
        return _task_created(call)
    return _task_updated(call) if call.kind == "taskupdate" else ()


def task(payload: Payload, status: PlanStatus) -> tuple[Planned, ...]:
    """Return what an event about one task reports; the tool's own event reports the same."""
    named, subject = _id(payload, "task_id"), text(payload, "task_subject", most=ITEM_CHARS)
    if named is None and subject is None:
        return ()
    return _one(PlanItem(text=subject or "", status=status, id=named))


def listed(plan: Any, *, whole: bool = True) -> tuple[Planned, ...]:
    """Return the plan in a list of steps, even in one written as text; empty for no list."""
    if isinstance(plan, str):
        plan = _lines(plan)
    if not isinstance(plan, list):
        return ()
    items = tuple(item for each in plan[:ITEMS] if (item := _item(each)) is not None)
    return (Planned(items=items, whole=whole),)


def _lines(plan: str) -> list[dict[str, str]]:
    """Return the steps of a list that is written as text."""
    steps = []
    for line in plan.splitlines()[:ITEMS]:
        if (step := _STEP_LINE.fullmatch(line)) is not None:
            steps.append({"status": step[1], "content": step[2]})
        elif (step := _BOX.fullmatch(line)) is not None:
            steps.append({"status": _BOXES.get(step[1], "pending"), "content": step[2]})
    return steps


def _item(step: Any) -> PlanItem | None:
    if not isinstance(step, dict):
        return None
    words = text(step, *_WORDS, most=ITEM_CHARS)
    status = _STATUSES.get(text(step, "status") or "", "pending")
    return None if words is None else PlanItem(text=words, status=status, id=_id(step, "id"))


def _task_created(call: ToolCall) -> tuple[Planned, ...]:
    made = table(call.result, "task")
    words = text(call.given, "subject", most=ITEM_CHARS) or text(made, "subject", most=ITEM_CHARS)
    if words is None:
        return ()
    named = _id(made, "id")
    links = _links(call.given, named)
    return _one(PlanItem(text=words, status="pending", id=named), links=links)


def _task_updated(call: ToolCall) -> tuple[Planned, ...]:
    """Return the change of one task: its new status, and what it waits for."""
    named = _id(call.given, "taskId", "task_id") or _id(call.result, "taskId")
    status = _STATUSES.get(text(call.given, "status") or "")
    if named is None or call.result.get("success") is False:
        return ()
    links = _links(call.given, named)
    if status is None:
        return _one(links=links) if links else ()
    words = text(call.given, "subject", most=ITEM_CHARS) or ""
    return _one(PlanItem(text=words, status=status, id=named), links=links)


# Fields that name the tasks that a task waits for, and those that wait for it.
_WAITS_FOR = ("blockedBy", "addBlockedBy", "removeBlockedBy")
_IS_AWAITED_BY = ("blocks", "addBlocks", "removeBlocks")


def _links(given: Payload, named: str | None) -> tuple[PlanLink, ...]:
    """Return what a call reports about which task waits for which."""
    links: list[PlanLink] = []
    for name in (*_WAITS_FOR, *_IS_AWAITED_BY):
        ids = given.get(name)
        for each in ids[:LINKS] if isinstance(ids, list) else ():
            other = _id({"id": each}, "id")
            if named is None or other is None or other == named:
                continue
            item, on = (named, other) if name in _WAITS_FOR else (other, named)
            links.append(PlanLink(item=item, on=on, ends=name.startswith("remove")))
    return tuple(links)


def _one(*items: PlanItem, links: tuple[PlanLink, ...] = ()) -> tuple[Planned, ...]:
    """Return a change of one task: Claude keeps one list of tasks for the whole session."""
    return (Planned(items=items, whole=False, shared=True, links=links),)


def _id(source: Payload, *names: str) -> str | None:
    for name in names:
        value = source.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return cut(str(value), 20) if abs(value) < 2**63 else None
    return text(source, *names)
