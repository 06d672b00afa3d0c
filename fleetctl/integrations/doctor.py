"""Doctor of hooks: check whether installed hooks work, and run the installed command once."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..client.models import Finding, HarnessStatus
from ..output import console
from . import config_file
from .hook_command import for_doctor, program_of
from .hooks import found
from .installation import run_program
from .jsonc import is_blank, is_plain, parse
from .registry import CLAUDE, CODEX, GEMINI, Harness
from .status import HooksState

if TYPE_CHECKING:
    import subprocess

RUN_S = 15
# About the hook's timeout for an answer.
SLOW_MS = 900
SAMPLE = '{"hook_event_name":"SessionStart","session_id":"doctor","source":"startup"}'


def findings(
    harness: Harness,
    seen: HooksState,
    status: HarnessStatus | None,
    *,
    daemon: bool,
    project: Path | None = None,
) -> Iterator[Finding]:
    """Yield what was found about a harness, in a project's settings if there is one.

    ``status`` is what the daemon received from it; ``daemon`` tells whether a daemon answers.
    """
    install = f"run: fleetctl hooks install {harness.name}"
    if seen.installed == "unknown":
        yield _finding(harness, "installed", seen.problem, ok=False)
        return
    if seen.installed == "no":
        yield _finding(harness, "installed", f"no hooks in {seen.file}; {install}", ok=False)
        return
    yield _installed(harness, seen, install)
    absent = _absent(seen)
    complaint = absent or ("" if seen.current else "it differs from what this fleetd writes")
    if complaint:
        yield _finding(harness, "command", f"{complaint}; {install}", ok=False)
    else:
        yield _client(harness, seen, install)
    file = config_file.read(Path(seen.file), project=project)
    if file.exposed:
        detail = f"{file.exposed} Make it yours alone: chown, or chmod go-w"
        yield _finding(harness, "permissions", detail, ok=False)
    yield from _allowed(harness, seen, file.text or "", status)
    if daemon:
        yield from _received(harness, status)
    if seen.commands and not absent:
        foreign = project is not None or bool(file.exposed)
        yield _tried(harness, seen, daemon=daemon, foreign=foreign)


def _finding(
    harness: Harness, check: str, detail: str, *, ok: bool = True, note: bool = False
) -> Finding:
    return Finding(check=check, ok=ok, subject=harness.name, detail=detail, note=note)


def _installed(harness: Harness, seen: HooksState, install: str) -> Finding:
    if seen.missing:
        missing = ", ".join(seen.missing)
        detail = f"{seen.file} lacks {missing}; {install}"
        return _finding(harness, "installed", detail, ok=False)
    if seen.updates:
        detail = f"{seen.file}; of an earlier version, without {', '.join(seen.updates)}; {install}"
        return _finding(harness, "installed", detail, note=True)
    return _finding(harness, "installed", seen.file)


def _client(harness: Harness, seen: HooksState, install: str) -> Finding:
    """Report which client the commands run."""
    if seen.slower:
        detail = f"it runs the client in Python; for the compiled one, which is faster, {install}"
        return _finding(harness, "command", detail, note=True)
    clients = {"compiled": ": the compiled client", "python": ": the client in Python"}
    detail = "of this installation" + clients.get(seen.client, "")
    return _finding(harness, "command", detail)


def _absent(seen: HooksState) -> str:
    """Return why a program of the commands cannot run; empty when all can."""
    for interpreter, client in map(program_of, seen.commands):
        if not os.access(interpreter, os.X_OK):
            return f"{interpreter or 'the interpreter'} cannot be executed"
        if not os.access(client, os.R_OK):
            return f"{client or 'the hook'} cannot be read"
    return ""


def _allowed(
    harness: Harness, seen: HooksState, text: str, status: HarnessStatus | None
) -> Iterator[Finding]:
    """Yield whether the harness will run its hooks at all."""
    if detail := _switched_off(harness, text):
        yield _finding(harness, "trust", detail, ok=False)
    elif harness is CODEX:
        yield _trusted(harness, seen, text, status)
        yield _codex_plan(harness)
    elif harness.trust:
        yield _finding(harness, "trust", harness.trust, note=True)


def _switched_off(harness: Harness, text: str) -> str:
    """Return which setting disables all hooks, or ours; empty when none does."""
    if is_blank(text):
        return ""
    if harness.plain_json and not is_plain(text):
        return f"comments or trailing commas in {harness.file}: it ignores the whole file"
    if harness not in (CLAUDE, GEMINI):
        return ""
    settings = parse(text).value()
    if harness is CLAUDE:
        off = settings.get("disableAllHooks") is True
        return '"disableAllHooks" is true in its settings, so none runs' if off else ""
    hooks = settings.get("hooksConfig")
    if not isinstance(hooks, dict):
        return ""
    if hooks.get("enabled") is False:
        return '"hooksConfig.enabled" is false in its settings, so none runs'
    if "fleetd" in (hooks.get("disabled") or ()):
        return '"hooksConfig.disabled" names fleetd in its settings; /hooks enable fleetd'
    return ""


def _trusted(
    harness: Harness, seen: HooksState, text: str, status: HarnessStatus | None
) -> Finding:
    """Report whether Codex trusted our hooks; only Codex knows if their hashes still match."""
    states = _codex_setting("hooks", "state")
    keys = [_codex_key(seen.file, each.event, each.within) for each in found(text, harness)]
    untrusted = sum(not isinstance(states.get(key), dict) for key in keys)
    if not untrusted:
        return _finding(harness, "trust", "every hook was trusted once in Codex's /hooks")
    if status is not None and status.last_event_at is not None:
        detail = f"{untrusted} of {len(keys)} are not in config.toml as trusted, but events arrive"
        return _finding(harness, "trust", detail, note=True)
    detail = f"{untrusted} of {len(keys)} hooks are not trusted. {harness.trust}"
    return _finding(harness, "trust", detail, ok=False)


def _codex_plan(harness: Harness) -> Finding:
    """Report whether Codex makes plans: from 0.152 on, only if its settings enable them."""
    if _codex_setting("tools", "update_plan").get("enabled") is True:
        return _finding(harness, "plan", "its plans are followed")
    detail = (
        "Codex makes no plans by itself, so its missions have no sorties. To turn plans on, set"
        " enabled = true under [tools.update_plan] in its config.toml"
    )
    return _finding(harness, "plan", detail, note=True)


def _codex_setting(section: str, name: str) -> dict[str, object]:
    """Return a table of Codex's settings, an empty one where there is none to read."""
    # Imported here: most users of this module never need it.
    import tomllib

    path = CODEX.directory() / "config.toml"
    try:
        table = tomllib.loads(path.read_text("utf-8")).get(section, {}).get(name, {})
    except (OSError, ValueError, AttributeError):
        return {}
    return table if isinstance(table, dict) else {}


def _codex_key(file: str, event: str, within: tuple[tuple[object, int], ...]) -> str:
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in event).lstrip("_")
    return ":".join([file, snake, *(str(index) for _container, index in within[2:])])


def _received(harness: Harness, status: HarnessStatus | None) -> Iterator[Finding]:
    if status is None or status.last_event_at is None:
        detail = "nothing yet; hooks take effect in its next session"
        yield _finding(harness, "heard", detail, note=True)
        return
    understood = status.last_event is not None
    what = status.last_event or "no event that fleetd knows, the last"
    detail = f"{what} {console.moment(status.last_event_at)}"
    if status.unfit:
        unreadable = f"{status.unfit} of {status.deliveries} events were unreadable"
        detail += f"; {unreadable}: fleetd's log has one of each"
    yield _finding(harness, "heard", detail, ok=understood)
    if status.p95_ms is not None:
        slow = status.p95_ms >= SLOW_MS
        detail = f"p50 {status.p50_ms:.0f} ms, p95 {status.p95_ms:.0f} ms"
        detail += ": hooks give up before the answer comes; is the machine busy?" if slow else ""
        yield _finding(harness, "timing", detail, ok=not slow)


def _tried(harness: Harness, seen: HooksState, *, daemon: bool, foreign: bool) -> Finding:
    """Run the installed command, unless somebody else may have written it to look like ours.

    Settings may come with a project, and other users may be able to write the file.
    """
    if foreign and not seen.current:
        detail = "not run: another user may have written the command"
        return _finding(harness, "run", detail, ok=False)
    return _run(harness, seen.commands[0], daemon=daemon)


def _run(harness: Harness, command: str, *, daemon: bool) -> Finding:
    """Run the installed command with one more word, which keeps it out of the records.

    Without a daemon, the command uses a temporary spool.
    """
    # Imported here: most users of this module never need it.
    import tempfile

    begun = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="fleet-doctor-") as directory:
            done = run_program(
                ["/bin/sh", "-c", for_doctor(command, harness)],
                stdin=SAMPLE,
                cwd=directory,
                env=dict(os.environ) if daemon else {**os.environ, "XDG_STATE_HOME": directory},
                timeout_s=RUN_S,
            )
            took_ms = (time.monotonic() - begun) * 1_000
            kept = any(Path(directory).rglob("*.json"))
    except OSError as error:
        return _finding(harness, "run", f"it failed: {error}", ok=False)
    complaint = _complaint(done, daemon=daemon, kept=kept)
    if complaint:
        return _finding(harness, "run", f"{complaint}; the command is: {command}", ok=False)
    reached = "reached fleetd" if daemon else "wrote its event into the spool"
    return _finding(harness, "run", f"the test run {reached} in {took_ms:.0f} ms")


def _complaint(done: "subprocess.CompletedProcess[str]", *, daemon: bool, kept: bool) -> str:
    if done.returncode != 0:
        return f"it ended with status {done.returncode}, which the agent CLI would report"
    if done.stderr:
        return f"it wrote to stderr: {done.stderr.strip()[:200]}"
    expected = "fleetd" if daemon else ""
    # Agent CLIs that require an object get an empty one, which counts as no answer.
    if done.stdout.strip().removeprefix("{}") == expected:
        return "" if daemon or kept else "it wrote no event into the spool"
    if not done.stdout:
        return "it printed nothing, and did not reach fleetd"
    return f"it printed {done.stdout[:200]!r}"
