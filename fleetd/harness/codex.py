"""Codex's hooks, which are shaped like Claude's.

Based on the schemas that are part of Codex 0.169, and on the behaviour of that version.
"""

import json
import re

from msgspec.structs import replace

from .claude import HANDLERS, subagent
from .codex_rollout import happenings_in
from .payload import (
    VERSION_CHARS,
    ToolCall,
    cut,
    ended_with,
    event_name,
    happenings_of,
    listed,
    need,
    patched,
    path,
    reverted,
    waits_for_user,
)
from .report import (
    Adapter,
    Answer,
    Happenings,
    Payload,
    PermissionRequested,
    Report,
    ToolFinished,
    ToolStarted,
)

INJECTING = frozenset(("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"))
# No event reports how a command ended, and some edits are not reported at all.
LOOKING_BACK = frozenset(("PreCompact", "Stop", "Interrupt", "SessionEnd"))
PATCH, PLAN = "apply_patch", "update_plan"

# The shell does not run a patch in its command: Codex applies the patch itself.
_IN_SHELL = re.compile(r"\s*(?:cd\s+(\S+)\s*&&\s*)?(?:apply_patch|applypatch)\s[^\n]*<<")
# A command's output can begin with such words too, but hardly with both lines.
_OUTCOME = re.compile(r"Exit code: (-?\d{1,10})\nWall time: ")

# The fields in the schemas of all events together: each schema refuses any other field.
_FIELDS = frozenset(
    (
        *("agent_id", "agent_transcript_path", "agent_type", "cwd", "hook_event_name"),
        *("last_assistant_message", "model", "permission_mode", "prompt", "reason", "session_id"),
        *("source", "stop_hook_active", "tool_input", "tool_name", "tool_response"),
        *("tool_use_id", "transcript_path", "trigger", "turn_id"),
    )
)
# Occurs once in a rollout, at its beginning.
_VERSION = re.compile(r'"cli_version":"([^"\\]{1,100})"')


class Codex(Adapter):
    """The adapter of Codex."""

    name = "codex"
    known_events = HANDLERS.keys()
    known_fields = _FIELDS
    versions_in_transcripts = True

    def read(self, payload: Payload, event: str | None) -> Report:
        """Turn a payload into a report; raises Unfit."""
        named = event_name(payload, event)
        cwd = path(payload.get("cwd"), None)
        call = ToolCall(payload, cwd, silent=True)
        inner = subagent(payload)
        return Report(
            harness=self.name,
            event=named,
            session_id=need(payload, "session_id"),
            happenings=happenings_of(HANDLERS | _OWN, named, call),
            subagent=inner,
            cwd=cwd,
            transcript_path=path(payload.get("transcript_path"), None),
            subagent_transcript_path=path(payload.get("agent_transcript_path"), None),
            injects=named in INJECTING,
            denies=named == "PreToolUse" and bool(_edits(call)),
            # A subagent's rollout may begin with its parent's.
            looks_back=named in LOOKING_BACK and inner is None,
        )

    def reply(self, report: Report, answer: Answer) -> str:
        """Return the one JSON object that is honoured: a single unknown key fails the hook."""
        output: dict[str, str] = {}
        if answer.deny is not None and answer.deny.strip() and report.denies:
            output |= {"permissionDecision": "deny", "permissionDecisionReason": answer.deny}
        if answer.context and report.injects:
            output["additionalContext"] = answer.context
        if not output:
            return ""
        return json.dumps({"hookSpecificOutput": {"hookEventName": report.event, **output}})

    def look_back(self, tail: str) -> Happenings:
        """Return this turn's commands and edits as the rollout reports them, and the plan."""
        return happenings_in(tail)

    def version_in(self, head: str, tail: str) -> str | None:
        """Return the version that began the session."""
        found = _VERSION.search(head)
        return cut(found[1], VERSION_CHARS) if found else None


def _started(call: ToolCall) -> Happenings:
    command = None if call.tool == PATCH else call.command
    started = ToolStarted(call.tool, call_id=call.call_id, command=command, edits=_edits(call))
    return (started, *waits_for_user(call))


def _asked(call: ToolCall) -> Happenings:
    """Report a request for permission, which Codex may grant by itself immediately."""
    happenings = HANDLERS["PermissionRequest"](call)
    return tuple(
        replace(each, certain=False, beside=False)
        if isinstance(each, PermissionRequested)
        else each
        for each in happenings
    )


def _finished(call: ToolCall) -> Happenings:
    passed, error = _outcome(call)
    finished = ToolFinished(
        tool=call.tool,
        call_id=call.call_id,
        command=None if call.tool == PATCH else call.command,
        edited=_edits(call) if passed is not False else (),
        passed=passed,
        error=error,
    )
    plan = listed(call.given.get("plan")) if call.tool == PLAN else ()
    return (finished, *plan, *(reverted(call) if passed is not False else ()))


def _edits(call: ToolCall) -> tuple[str, ...]:
    """Return the files that a patch changes, in whichever form it arrives."""
    given = call.given.get("command")
    if not isinstance(given, str):
        return ()
    if call.tool == PATCH:
        return patched(given, call.cwd)
    inside = _IN_SHELL.match(given)
    if call.command is None or inside is None:
        return ()
    return patched(given, path(inside[1], call.cwd) if inside[1] else call.cwd)


def _outcome(call: ToolCall) -> tuple[bool | None, str | None]:
    """Return whether a call passed if the response reports it; mostly only the rollout does."""
    response = call.payload.get("tool_response")
    if isinstance(response, str) and (found := _OUTCOME.match(response)) is not None:
        passed = int(found[1]) == 0
        output = response.partition("\nOutput:\n")[2]
        return passed, None if passed else ended_with(f"Exit code {found[1]}", output)
    return None, None


_OWN = {"PreToolUse": _started, "PostToolUse": _finished, "PermissionRequest": _asked}

adapter = Codex()
