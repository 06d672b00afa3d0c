"""Claude Code's hooks, and those of Qwen Code, Droid and Kimi Code that are shaped like them.

Must not know any rule: what the reports mean is settled in ``domain/sessions``.
Source: hooks, "Claude Code" and "Others, same pattern".
"""

import json
from typing import Any

from .claude_events import TOLD, subagent
from .fields import WORD_CHARS, cut, need, path, text
from .report import Answer, AnyHappening, Report
from .tool_calls import Call

# Where additionalContext reaches the model. Elsewhere it does nothing, or keeps the turn going.
INJECTING = frozenset(
    ("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "SubagentStart")
)


class Claude:
    """One harness that speaks as Claude Code does.

    ``injecting`` are its events whose reply reaches the model, ``channel`` is the reply's field for
    that. ``denying`` says that it can refuse an edit, ``silent_failures`` that no event tells of a
    tool that failed.
    """

    def __init__(
        self,
        name: str,
        *,
        injecting: frozenset[str] = INJECTING,
        channel: str = "additionalContext",
        denying: bool = True,
        silent_failures: bool = False,
    ) -> None:
        self.name = name
        self._injecting = injecting
        self._channel = channel
        self._denying = denying
        self._silent_failures = silent_failures

    def read(self, payload: dict[str, Any], event: str | None) -> Report:
        """Turn a payload into a report; raises Unfit."""
        named = text(payload, "hook_event_name") or cut(event or "", WORD_CHARS)
        named = named or need(payload, "hook_event_name")
        cwd = path(payload.get("cwd"), None)
        call = Call(payload, cwd, self._silent_failures)
        tell = TOLD.get(named)
        return Report(
            harness=self.name,
            event=named,
            session_id=need(payload, "session_id"),
            happenings=() if tell is None else tell(call),
            subagent=subagent(payload),
            previous_session_id=text(payload, "previous_session_id"),
            cwd=cwd,
            transcript_path=path(payload.get("transcript_path"), None),
            moment=text(payload, "timestamp"),
            injects=named in self._injecting,
            denies=self._denying and named == "PreToolUse" and bool(call.edits),
        )

    def reply(self, report: Report, answer: Answer) -> str:
        """Return the one JSON object that is honoured; empty wherever it would do harm."""
        if answer.deny is not None and report.denies:
            return _output(
                report.event, permissionDecision="deny", permissionDecisionReason=answer.deny
            )
        if answer.context and report.injects:
            return _output(report.event, **{self._channel: answer.context})
        return ""

    def look_back(self, tail: str) -> tuple[AnyHappening, ...]:
        """Return nothing: the events tell everything."""
        return ()


def _output(event: str, **said: str) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **said}})


adapter = Claude("claude")
qwen = Claude("qwen")
droid = Claude(
    "droid",
    injecting=frozenset(("SessionStart", "UserPromptSubmit", "PostToolUse")),
    silent_failures=True,
)
kimi = Claude("kimi", injecting=frozenset(("UserPromptSubmit",)), channel="message")
