"""Reader of rollouts, the files in which Codex keeps its sessions.

Based on rollouts of Codex 0.169. Earlier versions wrote function calls with their outcome in the
output. Lines of other kinds are skipped. Models that call tools from JavaScript write their plan
into a script of the ``exec`` tool: ``tools.update_plan({plan: [...]})``.
"""

import json
import re
from typing import Any

from .payload import (
    COMMAND_CHARS,
    ERROR_CHARS,
    ITEMS,
    MESSAGE_CHARS,
    cut,
    ended_with,
    listed,
    path,
    table,
    text,
    window_used,
)
from .report import Happenings, Paused, Payload, Planned, Refused, ToolFinished, WindowUsed

# Earlier calls of a turn were reported by events, or are of no interest any more.
CALLS = 100

_EXITED = re.compile(r"(?:\A|\n)(?:Process exited with code|Exit code:) (-?\d{1,10})\n")
_REFUSED = re.compile(r"unsupported call|Script failed|Command blocked|failed to parse|aborted")
# The user refused a call; Codex reports the refusal by a rule in other words.
_REFUSED_BY_USER = re.compile(r"(exec command|patch) rejected by user")
_UNFIT_PATCH = "apply_patch verification failed"
_SHELLS = frozenset(("exec_command", "shell_command", "shell", "local_shell", "container.exec"))
# A line is parsed only when it can hold what is looked for, which most lines cannot.
_WORTH = re.compile(
    r'"type":\s*"(?:item_completed|task_started|turn_started|message|token_count|compacted'
    r'|(?:function|custom_tool)_call(?:_output)?)"'
)
_STRING = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\$]|\\.)*`"
_FIELD = rf"[\"']?(step|status)[\"']?\s*:\s*({_STRING})"
_ITEM = re.compile(rf"[\s,]*\{{\s*{_FIELD}\s*,\s*{_FIELD}\s*,?\s*\}}")
_LIST = re.compile(r"[\"']?\bplan[\"']?\s*:\s*\[")
_END = re.compile(r"[\s,]*\]")
_HEX = "([0-9a-fA-F]"
_ESCAPE = re.compile(rf"\\(?:u{_HEX}{{4}})|u\{{{_HEX}{{1,5}})\}}|x{_HEX}{{2}})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": ""}


def happenings_in(tail: str) -> Happenings:
    """Return the last plan, how this turn's calls ended, the last answer, and the window's use.

    It includes the calls that the user refused. Calls come oldest first.
    """
    seen = _Seen()
    for line in tail.split("\n"):  # a text may contain any other line separator
        if _WORTH.search(line, 0, 400) is not None:
            seen.take(line)
    answer = [] if seen.answer is None else [Paused(last_message=seen.answer)]
    ended = list(seen.ended.values())[-CALLS:]
    return (*seen.plan, *ended, *list(seen.refused.values())[-CALLS:], *answer, *seen.used)


class _Seen:
    """What was read so far."""

    def __init__(self) -> None:
        self.plan: tuple[Planned, ...] = ()
        self.ended: dict[str, ToolFinished] = {}
        self.refused: dict[str, Refused] = {}
        self.answer: str | None = None
        self.used: tuple[WindowUsed, ...] = ()
        self._calls: dict[str, Payload] = {}
        # The plan before each call that changed it, in case the call turns out to be refused.
        self._before: dict[str, tuple[Planned, ...]] = {}

    def take(self, line: str) -> None:
        """Take in one line; a cut or odd one is ignored."""
        try:
            entry = json.loads(line)
            payload = table(entry, "payload")
        except (ValueError, RecursionError, AttributeError):
            return
        kind = text(payload, "type")
        if text(entry, "type") == "compacted":
            self.used = ()
        elif kind == "token_count":
            self.used = _used(payload) or self.used
        elif kind in ("task_started", "turn_started"):
            self.ended, self.refused, self.answer = {}, {}, None
        elif kind == "message" and payload.get("role") == "assistant":
            self.answer = _written(payload) or self.answer
        elif kind in ("function_call", "custom_tool_call"):
            self._called(payload)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._put_out(payload)
        elif kind == "item_completed":
            self._completed(table(payload, "item"))

    def _called(self, call: Payload) -> None:
        call_id, plan = text(call, "call_id"), _plan(call)
        if call_id is None:
            return
        self._calls[call_id] = call
        if plan is not None:
            # A script that breaks off may have planned before: then the plan is unknown.
            self._before[call_id] = self.plan if text(call, "name") == "update_plan" else ()
            self.plan = plan

    def _put_out(self, payload: Payload) -> None:
        call_id, output = text(payload, "call_id"), _output(payload.get("output"))
        if call_id is None:
            return
        if call_id in self._before and _REFUSED.match(output):
            self.plan = self._before[call_id]
        if (no := _REFUSED_BY_USER.match(output)) is not None:
            self.refused[call_id] = _refused(no[1], self._calls.get(call_id, {}))
        if call_id not in self.ended:
            ended = _by_output(call_id, self._calls.get(call_id, {}), output)
            if ended is not None:
                self.ended[call_id] = ended

    def _completed(self, item: Payload) -> None:
        call_id, kind = text(item, "id"), text(item, "type")
        ended = None
        if call_id is not None and kind == "CommandExecution":
            ended = _command(call_id, item)
        elif call_id is not None and kind == "FileChange":
            ended = _change(call_id, item)
        if ended is not None and call_id is not None:
            self.ended[call_id] = ended


def _refused(what: str, call: Payload) -> Refused:
    """Return the user's refusal of a call, with the command where the call has one."""
    given = text(call, "arguments", "input", most=MESSAGE_CHARS)
    command = _command_of(given) if what == "exec command" and given else None
    about = f"{what}: {command}" if command else what
    return Refused("permission", cut(about, MESSAGE_CHARS), maybe_repeated=True)


def _command_of(arguments: str) -> str | None:
    """Return the command of a shell's call; some versions give it as a list of words."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict):
        return None
    words = given.get("command")
    if isinstance(words, list) and all(isinstance(each, str) for each in words):
        return cut(" ".join(words), COMMAND_CHARS) or None
    return text(given, "cmd", "command", most=COMMAND_CHARS)


def _used(count: Payload) -> tuple[WindowUsed, ...]:
    """Return how full the window was after the last request; the totals are the session's."""
    info = table(count, "info")
    size = {"size": info.get("model_context_window")}
    return window_used(table(info, "last_token_usage") | size, "total_tokens", "size")


def _plan(call: Payload) -> tuple[Planned, ...] | None:
    """Return the plan that a call makes, empty for one that cannot be read; None for no plan."""
    name, given = text(call, "name"), text(call, "arguments", "input", most=MESSAGE_CHARS * 25)
    if given is None:
        return None
    if name == "exec":
        return script_plan(given)
    if name != "update_plan":
        return None
    try:
        return listed(json.loads(given).get("plan"))
    except (ValueError, RecursionError, AttributeError):
        return ()


def _command(call_id: str, item: Payload) -> ToolFinished | None:
    """Return how a command ended; None while it runs, or when Codex itself ended it."""
    code = item.get("exit_code")
    if isinstance(code, bool) or not isinstance(code, int) or not 0 <= code < 2**31:
        return None
    return _shell(call_id, _line(item.get("command")), code, item.get("aggregated_output"))


def _change(call_id: str, item: Payload) -> ToolFinished:
    passed = text(item, "status") == "completed"
    changes = table(item, "changes")
    named = [
        file
        for old, change in list(changes.items())[:CALLS]
        for file in (path(old, None), path(_moved(change), None))
        if file is not None
    ]
    error = None if passed else text(item, "stderr", "stdout", most=ERROR_CHARS)
    return ToolFinished(
        tool="apply_patch",
        call_id=call_id,
        edited=tuple(dict.fromkeys(named)) if passed else (),
        passed=passed,
        error=error,
    )


def _moved(change: Any) -> Any:
    return change.get("move_path") if isinstance(change, dict) else None


def _by_output(call_id: str, call: Payload, output: str) -> ToolFinished | None:
    """Return how a call ended, if its output reports it."""
    name = text(call, "name")
    if name == "apply_patch" and output.startswith(_UNFIT_PATCH):
        error = cut(output, ERROR_CHARS)
        return ToolFinished(tool=name, call_id=call_id, passed=False, error=error)
    found = _EXITED.search(output.partition("\nOutput:")[0] + "\n")
    if name not in _SHELLS or found is None or not 0 <= int(found[1]) < 2**31:
        return None
    try:
        given = json.loads(call.get("arguments") or "")
    except (ValueError, RecursionError, TypeError):
        return None
    line = _line(given.get("cmd") or given.get("command")) if isinstance(given, dict) else None
    return _shell(call_id, line, int(found[1]), output.partition("\nOutput:\n")[2])


def _shell(call_id: str, line: str | None, code: int, output: Any) -> ToolFinished | None:
    if line is None:
        return None
    error = ended_with(f"Exit code {code}", output if isinstance(output, str) else "")
    return ToolFinished(
        tool="Bash",
        call_id=call_id,
        command=line,
        passed=code == 0,
        error=error if code else None,
    )


def _line(command: Any) -> str | None:
    """Return a command line, without the shell that Codex put before it."""
    if isinstance(command, list):
        words = [word for word in command[:50] if isinstance(word, str)]
        command = words[-1] if len(words) == 3 else " ".join(words)
    return text({"line": command}, "line", most=COMMAND_CHARS)


def _written(message: Payload) -> str | None:
    parts = message.get("content")
    texts = [
        text(part, "text", most=MESSAGE_CHARS) or ""
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, dict)
    ]
    return cut("\n".join(filter(None, texts)), MESSAGE_CHARS) or None


def _output(output: Any) -> str:
    """Return an output's text, the beginning of the first part where there are several."""
    if isinstance(output, list) and output and isinstance(output[0], dict):
        output = output[0].get("text")
    return output if isinstance(output, str) else ""


def script_plan(script: str) -> tuple[Planned, ...] | None:
    """Return the last plan that a script makes; None for no plan, empty for a computed one."""
    _, called, given = script.rpartition("update_plan(")
    if not called:
        return None
    opening = _LIST.search(given)
    return _read(given, opening.end()) if opening else ()


def _read(given: str, at: int) -> tuple[Planned, ...]:
    found: list[dict[str, str]] = []
    while len(found) < ITEMS and (item := _ITEM.match(given, at)) is not None:
        found.append({item[1]: _plain(item[2]), item[3]: _plain(item[4])})
        at = item.end()
    return listed(found) if _END.match(given, at) else ()


def _plain(literal: str) -> str:
    """Return the value of a string literal."""

    def character(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        return chr(int(code, 16)) if code else _ESCAPED.get(found[4], found[4])

    unescaped = _ESCAPE.sub(character, literal[1:-1])
    # A character beyond the first 65,536 is written as two halves.
    return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
