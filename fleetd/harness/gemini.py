"""Gemini CLI's hooks, and the log of its session.

Based on the reference of hooks and the files of Gemini CLI 0.61, and on the behaviour of that
version. No event follows a compaction: it shows in the log only. Each line there is a message or
replaces fields; one that sets ``messages`` replaces the conversation. That happens after a
compaction, which puts a summary first. It also happens when a session is resumed, where the
messages keep their ids.

The first request after a compaction is sent before any event whose text stays in the window. Its
BeforeModel event can change that request, but not the conversation.
"""

import json
import re
from itertools import islice

from .claude import session_ended
from .payload import (
    ERROR_CHARS,
    MESSAGE_CHARS,
    PATH_CHARS,
    PROMPT_CHARS,
    WORD_CHARS,
    Handler,
    ToolCall,
    cut,
    ended_with,
    event_name,
    happenings_of,
    need,
    path,
    planned,
    reverted,
    table,
    text,
    tool_started,
    window_used,
)
from .report import (
    Adapter,
    Answer,
    AnyHappening,
    Compacting,
    Happenings,
    Noted,
    Paused,
    Payload,
    PermissionRequested,
    PlanProposed,
    PromptSubmitted,
    QuestionAsked,
    Refused,
    Report,
    SessionStarted,
    Source,
    ToolFinished,
    WindowUsed,
)

Outcome = tuple[bool | None, str | None]

INJECTING = frozenset(("SessionStart", "BeforeAgent", "AfterTool"))
# Of the reply to a start for this reason, only messages to the user are used.
CLEARED = "clear"
# Events at which an unreported compaction is looked for; most can bring the briefing. The
# compaction is recorded before the tool's own event.
SEEKING_COMPACTION = frozenset(("BeforeAgent", "BeforeTool", "AfterTool", "BeforeModel"))

_SOURCES: dict[str, Source] = {"resume": "resume", CLEARED: "clear"}
# The reply to SessionStart heads the first prompt, with its own brackets escaped.
_PUT_IN = re.compile(r"(?:\s*<hook_context>[^<]*</hook_context>)+")
# The content of files that a prompt names with @ is appended to it.
_FILES = "\n--- Content from referenced files ---"
_NO_ANSWER = "[no response text]"

# The end of a shell's result: text before it can be the command's own output.
_END_CHARS = 2_000
_END = re.compile(
    r"\n(Exit Code|Signal): ([^\n]*)"
    r"(?:\n(?:Signal|Background PIDs|Process Group PGID): [^\n]*)*"
    r"(?:\n</untrusted_context>)?(?:\s*\[System\][^\n]*)?\s*\Z"
)
_OUTPUT = re.compile(r"^Output: (?!\(empty\)\Z)", re.MULTILINE)
_NOTHING_WRONG = frozenset(("0", "(none)"))
_STOPPED = re.compile(r"(?:<untrusted_context>\s*)?Command was (?:automatically )?cancelled ")
_AWAY = re.compile(r"(?:<untrusted_context>\s*)?Command moved to background ")
_RAN = re.compile(r"(?:<untrusted_context>\s*)?(?:Command|Output): ")
# The text that the model receives about a plan that the user did not approve.
_REJECTED = re.compile(
    r"Plan rejected\. (?:No feedback provided\.|User feedback: (.*?)\n\nThe plan is stored at: )",
    re.DOTALL,
)
_REPLACES = b'\n{"$set":{"messages":['
# In texts the quotation marks are escaped.
_ID = re.compile(rb'"id":"([^"\\]{1,100})"')
_TOKENS = b'"tokens":{"input":'
_COUNT = re.compile(rb'"tokens":\{"input":(\d{1,12}),"output":(\d{1,12})[,}]')
_MODEL = re.compile(rb'[^{}]{0,200}\},"model":"gemini-')
# The size that Gemini CLI assumes for every Gemini model.
GEMINIS_WINDOW = 1_048_576


class Gemini(Adapter):
    """The adapter of Gemini CLI."""

    name = "gemini"

    def read(self, payload: Payload, event: str | None) -> Report:
        """Turn a payload into a report; raises Unfit."""
        named = event_name(payload, event)
        cwd = path(payload.get("cwd"), None)
        call = ToolCall(payload, cwd)
        return Report(
            harness=self.name,
            event=named,
            session_id=need(payload, "session_id"),
            happenings=happenings_of(_HANDLERS, named, call),
            cwd=cwd,
            transcript_path=path(payload.get("transcript_path"), None),
            moment=text(payload, "timestamp"),
            injects=named in INJECTING and text(payload, "source") != CLEARED,
            denies=named == "BeforeTool" and bool(call.edits),
            seeks_compaction=named in SEEKING_COMPACTION,
            request_opening=_opening(payload) if named == "BeforeModel" else None,
        )

    def reply(self, report: Report, answer: Answer) -> str:
        """Return the one JSON object that is honoured; empty wherever it would do harm."""
        if answer.context and report.request_opening:
            return _request_with(report.request_opening, answer.context)
        if answer.deny is not None and report.denies:
            return json.dumps({"decision": "deny", "reason": answer.deny})
        if answer.context and report.injects:
            output = {"hookEventName": report.event, "additionalContext": answer.context}
            return json.dumps({"hookSpecificOutput": output})
        return ""


def _opening(payload: Payload) -> str:
    """Return the first text of a request to the model; empty where a reply cannot repeat it."""
    messages = table(payload, "llm_request").get("messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    if not isinstance(first, dict) or first.get("role") != "user":
        return ""
    content = first.get("content")
    return content if isinstance(content, str) else ""


def _request_with(opening: str, context: str) -> str:
    """Return the reply that appends our text to the first message of a request.

    A reply replaces the texts of as many messages as it names, and leaves all others.
    """
    shown = context.replace("<", "&lt;").replace(">", "&gt;")
    content = f"{opening}\n\n<hook_context>{shown}</hook_context>"
    request = {"messages": [{"role": "user", "content": content}]}
    output = {"hookEventName": "BeforeModel", "llm_request": request}
    return json.dumps({"hookSpecificOutput": output})


def _session_started(call: ToolCall) -> Happenings:
    return (SessionStarted(source=_SOURCES.get(text(call.payload, "source") or "", "startup")),)


def _prompted(call: ToolCall) -> Happenings:
    raw_prompt = call.payload.get("prompt")
    if not isinstance(raw_prompt, str):
        return (Noted(what="empty_prompt"),)
    put_in = _PUT_IN.match(raw_prompt)
    written = raw_prompt[put_in.end() :] if put_in else raw_prompt
    prompt = cut(written.partition(_FILES)[0].strip(), PROMPT_CHARS)
    return (PromptSubmitted(prompt=prompt) if prompt.strip() else Noted(what="empty_prompt"),)


def _tool_finished(call: ToolCall) -> Happenings:
    passed, error = _outcome(call)
    finished = ToolFinished(
        tool=call.tool,
        command=call.command,
        edited=_edited(call) if passed is not False else (),
        passed=passed,
        error=error,
        background=passed is None and _AWAY.match(_llm_text(call)) is not None,
        read=call.reads if passed is not False else None,
    )
    if not passed:
        return (finished,)
    return (finished, *planned(call), *reverted(call, _llm_text(call)), *_plan_refused(call))


def _plan_refused(call: ToolCall) -> tuple[Refused, ...]:
    """Return the user's rejection of a plan that a tool showed; empty for all other calls."""
    found = _REJECTED.match(_llm_text(call)) if call.tool == "exit_plan_mode" else None
    if found is None:
        return ()
    plan = text(call.given, "plan_filename", "plan_path", most=PATH_CHARS)
    return (Refused("plan", plan, cut(found[1] or "", MESSAGE_CHARS).strip() or None),)


def _edited(call: ToolCall) -> tuple[str, ...]:
    """Return the file that an editing tool changed; the result has its resolved path."""
    if not call.edits:
        return ()
    file = path(table(call.result, "returnDisplay").get("filePath"), call.cwd)
    return call.edits if file is None else (file,)


def _outcome(call: ToolCall) -> Outcome:
    """Return whether a call passed, and what was wrong; None for what is unknown (yet)."""
    wrong = call.result.get("error")
    if wrong:
        message = text(wrong, "message", most=ERROR_CHARS) if isinstance(wrong, dict) else None
        return False, message or cut(_llm_text(call), ERROR_CHARS) or "it failed without a reason"
    return (True, None) if call.command is None else _ended(_llm_text(call))


def _ended(output: str) -> Outcome:
    """Return how a shell command ended; an exit code is reported only if it is not 0."""
    if _AWAY.match(output):
        return None, None
    if _STOPPED.match(output):
        return False, "interrupted before it ended"
    end = _END.search(output[-_END_CHARS:])
    if end is None:
        # A summary that the user requested in place of the output shows no outcome.
        return (True if _RAN.match(output) else None), None
    passed = end[2] in _NOTHING_WRONG
    printed = (
        output[: end.start() - _END_CHARS] if len(output) > _END_CHARS else output[: end.start()]
    )
    begun = _OUTPUT.search(printed)
    status = cut(f"{end[1].capitalize()} {end[2]}", WORD_CHARS)
    return passed, None if passed else ended_with(status, printed[begun.end() :] if begun else "")


def _llm_text(call: ToolCall) -> str:
    """Return the text that the model gets from a tool: a text, a part, or a list of both."""
    content = call.result.get("llmContent")
    parts = content if isinstance(content, list) else [content]
    texts = (each.get("text") if isinstance(each, dict) else each for each in parts)
    return "\n".join(each for each in texts if isinstance(each, str))


def _paused(call: ToolCall) -> Happenings:
    answer = text(call.payload, "prompt_response", most=MESSAGE_CHARS)
    return (Paused(last_message=None if answer == _NO_ANSWER else answer),)


def _compacting(call: ToolCall) -> Happenings:
    """Report a possible compaction: one is announced before every request to the model.

    One that a person asks for can find nothing to compact. The log shows whether it happened.
    """
    trigger = text(call.payload, "trigger") or "auto"
    return (Compacting(trigger=trigger, certain=False),)


def _notified(call: ToolCall) -> Happenings:
    kind = text(call.payload, "notification_type") or "notification"
    message = text(call.payload, "message", most=MESSAGE_CHARS)
    if kind == "ToolPermission":
        return (_asked(table(call.payload, "details"), message),)
    return (Noted(what=kind, message=message),)


def _asked(details: Payload, message: str | None) -> AnyHappening:
    """Report what the user is asked; tools that only ask arrive as requests for permission."""
    kind = text(details, "type")
    title = text(details, "title", most=MESSAGE_CHARS)
    # The start of the call reported what these ask.
    if kind == "ask_user":
        return QuestionAsked(question=title, reminder=True)
    if kind == "exit_plan_mode":
        return PlanProposed(plan=title, reminder=True)
    about = text(details, "command", "filePath", "toolName", "prompt", most=MESSAGE_CHARS)
    return PermissionRequested(message=about or message)


_HANDLERS: dict[str, Handler] = {
    "SessionStart": _session_started,
    "BeforeAgent": _prompted,
    "BeforeTool": tool_started,
    "AfterTool": _tool_finished,
    "AfterAgent": _paused,
    "PreCompress": _compacting,
    "Notification": _notified,
    "SessionEnd": session_ended,
}

# The events of 0.61 that fleetd does not use.
_IGNORED = frozenset(("BeforeModel", "AfterModel", "BeforeToolSelection"))
# The fields of all events together, by the reference of hooks.
_FIELDS = frozenset(
    (
        *("cwd", "details", "hook_event_name", "llm_request", "llm_response", "mcp_context"),
        *("message", "notification_type", "original_request_name", "prompt", "prompt_response"),
        *("reason", "session_id", "source", "stop_hook_active", "timestamp", "tool_input"),
        *("tool_name", "tool_response", "transcript_path", "trigger"),
    )
)

adapter = Gemini()
adapter.known_events = _HANDLERS.keys() | _IGNORED
adapter.known_fields = _FIELDS


def first_message(end: bytes, *, whole: bool) -> str | None:
    """Return the id of the first message of the conversation, after its fixed context.

    ``end`` is the end of the log, all of it if ``whole``. None where the id is unknown.
    """
    at = end.rfind(_REPLACES)
    if at < 0:
        return None
    line, _, later = end[at + 1 :].partition(b"\n")
    ids = [found[1] for found in islice(_ID.finditer(line), 2)]
    if len(ids) == 1 and whole:
        # Only the context was ever set: the first message is in a line of its own.
        ids += [found[1] for found in islice(_ID.finditer(later), 1)]
    return ids[1].decode("utf-8", "replace") if len(ids) == 2 else None


def last_count(end: bytes) -> tuple[WindowUsed, ...]:
    """Return how full the window was after the last answer, empty where that is not known.

    A count before the last replacement of the conversation is of a window that is gone.
    """
    replaced = end.rfind(_REPLACES)
    begin = end.find(b"\n", replaced + 1)
    line = -1 if begin < 0 else end.rfind(b"\n", begin, end.rfind(_TOKENS, begin) + 1)
    if line < 0:
        return ()
    # After its own count, a message contains the arguments of tools, which can be anything.
    found = _COUNT.match(end, end.find(_TOKENS, line))
    if found is None:
        return ()
    size = GEMINIS_WINDOW if _MODEL.match(end, found.end()) else None
    used = {"tokens": int(found[1]) + int(found[2]), "size": size}
    return window_used(used, "tokens", "size")
