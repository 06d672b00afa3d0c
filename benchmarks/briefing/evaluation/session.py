"""A session to play, and the facts that its agent needs: the files and their format.

``sessions/NAME.json`` contains the events, in the payloads of the CLI's own hooks.
``facts/NAME.json`` contains what an agent must know to continue correctly, and what would be wrong.
The facts are written from the transcript, never from a briefing.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

HERE = Path(__file__).parent
SESSIONS, FACTS = HERE / "sessions", HERE / "facts"
# The home directory in all files; a run replaces it with its own.
HOME = "/home/user"
BUDGETS = (1_000, 2_000, 4_000, 9_500)
MAIN = "main"

Cli = Literal["claude", "codex", "gemini", "opencode"]
Kind = Literal[
    "next step",
    "files at work",
    "failing test",
    "ruling",
    "ruled out",
    "who waits",
    "what runs",
    "instruction",
    "answer",
]


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One session of an agent CLI: ``fields`` are common to all its payloads.

    ``agent`` is fleetd's name for the agent of such a session.
    """

    cli: Cli
    agent: str
    fields: dict[str, Any]
    log: str | None = None
    """The transcript on the disk, where fleetd reads it."""


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A note by an agent or a person; ``withdrawn`` is the reason why it no longer applies."""

    kind: Literal["decision", "ruled-out", "constraint", "finding"]
    text: str
    because: str | None = None
    by: str | None = None
    pinned: bool = False
    withdrawn: str | None = None


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change of a file: replaces the first occurrence of a text."""

    old: str
    new: str


class Step(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One event, some seconds after the previous one; exactly one field has its content.

    ``hook`` is the payload of a hook of ``window``, without the window's ``fields``. ``log`` are
    lines that the CLI writes into its transcript. ``said`` is text of the agent, and ``shown`` is
    output of a tool, that no hook carries. ``call`` is a request of another client to fleetd, with
    ``params``. ``disk`` are the contents of files, or changes in them (None: deleted), and
    ``git`` is a command of Git.
    """

    after: float = 1
    window: str = MAIN
    hook: dict[str, Any] | None = None
    log: list[dict[str, Any]] | None = None
    said: str | None = None
    shown: str | None = None
    call: str | None = None
    params: dict[str, Any] = {}
    disk: dict[str, str | Edit | None] | None = None
    git: list[str] | None = None
    note: Note | None = None


class Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session up to its compaction. The answer to the last step's hook is the briefing."""

    title: str
    cli: Cli
    traits: list[str]
    origin: str
    held_out: bool
    project: str
    files: dict[str, str]
    windows: dict[str, Window]
    steps: list[Step]
    summary: str | None = None
    """The CLI's own summary, where a recording contains it completely."""


class Spelling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A regular expression by which a fact can be recognised."""

    pattern: str


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an agent must know: ``accepts`` are literal texts and patterns; one match is enough.

    Spaces in a literal text match any white space.
    """

    kind: Kind
    what: str
    accepts: list[str | Spelling]


class Wrong(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stale or wrong statement; ``under`` is a pattern for the headings that may contain it."""

    what: str
    accepts: list[str | Spelling]
    under: str | None = None


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The facts of one session."""

    facts: list[Fact]
    wrong: list[Wrong] = []


_session = msgspec.json.Decoder(Session).decode
_facts = msgspec.json.Decoder(Facts).decode


def names() -> list[str]:
    """Return the names of all sessions."""
    return sorted(file.stem for file in SESSIONS.glob("*.json"))


def session(name: str) -> Session:
    """Return the session with a name."""
    return _session((SESSIONS / f"{name}.json").read_bytes())


def facts(name: str) -> Facts:
    """Return the facts of the session with a name."""
    return _facts((FACTS / f"{name}.json").read_bytes())


def chosen(*, held_out: bool, only: Iterable[str] = ()) -> dict[str, Session]:
    """Return the sessions that are held out, or the others; ``only`` selects by name."""
    wanted = tuple(only)
    found = {name: session(name) for name in names() if not wanted or name in wanted}
    return {name: each for name, each in found.items() if each.held_out == held_out}
