"""What a tool call tells, by the names that Claude and those like it use."""

import re

import msgspec

from .fields import COMMAND_CHARS, ERROR_CHARS, PATH_CHARS, path, table, text, whole
from .report import Payload, ToolFinished, ToolStarted

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
_FILE_FIELDS = ("file_path", "notebook_path", "path", "absolute_path", "filePath", "target_file")
PATCHER = "applypatch"
_PATCH_FIELDS = ("command", "patch", "patchText", "input")
PATCH_CHARS = 1_000_000
_RESULTS = ("tool_response", "tool_result", "tool_output")
FILES = 200
NAMELESS = "unknown"
_NOT_A_LETTER = re.compile(r"[^a-z]")
# Spaces at a line's end are left to strip(): a pattern for both takes the square of their number.
_LINE = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool, as the payload of any of its events describes it.

    ``silent`` says that the harness has no event for failures: without an exit code nobody knows.
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
        return plain(self.tool)

    @property
    def given(self) -> Payload:
        """Return what the tool was called with."""
        return table(self.payload, "tool_input")

    @property
    def result(self) -> Payload:
        """Return what the tool gave back, empty when it is no object."""
        return next((found for name in _RESULTS if (found := table(self.payload, name))), {})

    @property
    def call_id(self) -> str | None:
        """Return the harness's name of the call, the same at its start and at its end."""
        return text(self.payload, "tool_use_id", "tool_call_id")

    @property
    def command(self) -> str | None:
        """Return the command line of a shell's call, None for all other tools."""
        return text(self.given, "command", most=COMMAND_CHARS) if self.kind in SHELLS else None

    @property
    def edits(self) -> tuple[str, ...]:
        """Return the files that an editing tool changes, as absolute paths."""
        if self.kind == PATCHER:
            return patched(self._patch, self.cwd)
        if self.kind not in EDITORS:
            return ()
        for source in (self.given, self.result):
            named = text(source, *_FILE_FIELDS, most=PATH_CHARS + 1)
            file = path(named, self.cwd)
            if file is not None:
                return (file,)
        return ()

    @property
    def _patch(self) -> str:
        given = self.payload.get("tool_input")
        if isinstance(given, str):
            return given[:PATCH_CHARS]
        return text(self.given, *_PATCH_FIELDS, most=PATCH_CHARS) or ""


def plain(name: str) -> str:
    """Return a tool's name in the form that the sets of names use."""
    return _NOT_A_LETTER.sub("", name.lower())


def started(call: ToolCall) -> ToolStarted:
    """Return the beginning of a call."""
    return ToolStarted(tool=call.tool, call_id=call.call_id, command=call.command, edits=call.edits)


def finished(call: ToolCall) -> ToolFinished:
    """Return the end of a call that the harness does not call a failure."""
    passed, error = _outcome(call)
    return ToolFinished(
        tool=call.tool,
        call_id=call.call_id,
        command=call.command,
        edited=(call.edits or _changed_by_command(call)) if passed is not False else (),
        passed=passed,
        error=error,
        duration_ms=whole(call.payload, "duration_ms"),
    )


def failed(call: ToolCall) -> ToolFinished:
    """Return the end of a call that failed, or that the user stopped."""
    error = _error(call.payload) or "it failed and did not say why"
    if call.payload.get("is_interrupt") is True:
        error = f"stopped by the user: {error}"[:ERROR_CHARS]
    return ToolFinished(
        tool=call.tool,
        call_id=call.call_id,
        command=call.command,
        passed=False,
        error=error,
        duration_ms=whole(call.payload, "duration_ms"),
    )


def _outcome(call: ToolCall) -> tuple[bool | None, str | None]:
    """Return whether a call passed, and what was wrong; None for what is not known (yet)."""
    result = call.result
    if result.get("interrupted") is True:
        return False, "interrupted before it ended"
    if text(result, "backgroundTaskId") or call.payload.get("is_backgrounded") is True:
        return None, None
    code = result.get("exit_code", result.get("exitCode"))
    if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**31:
        # An exit status that the harness has a meaning for, such as grep's 1, is no failure.
        passed = code == 0 or text(result, "returnCodeInterpretation") is not None
        return passed, None if passed else f"Exit code {code}"
    return (None if call.silent else True), None


def _error(payload: Payload) -> str | None:
    for source in (payload, table(payload, "error")):
        found = text(source, "error", "message", most=ERROR_CHARS)
        if found is not None:
            return found
    return None


def _changed_by_command(call: ToolCall) -> tuple[str, ...]:
    """Return the files that a shell command changed, where the harness looked.

    What it saw while other commands ran beside this one is nobody's for certain.
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
