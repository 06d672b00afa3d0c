"""What fleetd added to a request, found beside the same request without it; must not run an agent.

Two runs of a script differ in what each makes anew, such as ids and times. That is replaced here.
"""

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from tests.agents.script import Asked, Kind
from tests.agents.wording import SAYINGS

_SAYING = "|".join(SAYINGS.values())
_SAID = rf"(?P<said>(?:{_SAYING})(?:\n{{1,2}}(?:{_SAYING}))*)"
# How a CLI writes the text of a hook into a request.
_CONTEXT = r"\w+(?::\w+)? hook additional context: "
_FRAMES = {
    "claude": [
        rf"(?:\n\n)?<system-reminder>\n{_CONTEXT}{_SAID}\n</system-reminder>",
        rf"\A{_CONTEXT}{_SAID}(?:\n\n|\Z)",
    ],
    "codex": [rf"\A{_SAID}\Z"],
    "gemini": [rf"(?:\n\n)?<hook_context>{_SAID}</hook_context>"],
    "opencode": [rf"(?:\A|\n){_SAID}(?=\n|\Z)"],
    "copilot": [
        rf"\n\nTool \"\w+\" succeeded\. Additional guidance from postToolUse hooks:\n{_SAID}",
        rf"\n\n<system_reminder>\n{_SAID}\n</system_reminder>",
    ],
}
# What a part of a message may have beside a text, for it to be there for the text alone.
_BEARING = frozenset({"type", "role", "id", "text", "content"})
_EMPTIED: Final = object()

# Where the CLI lets a service keep a request: it is on the last part, whatever that is.
_CACHED = "cache_control"
# What each run makes anew: names of one length, which stays, and numbers of any.
_NAMES = (
    # sessions, turns and windows of most CLIs
    r"(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    # the scripted model: calls and answers
    r"\b(?:call|msg|resp|toolu)_[0-9a-f]{16}\b",
    # OpenCode: messages, parts and sessions
    r"\b(?:msg|prt|ses)_[0-9A-Za-z]{26}\b",
    # Claude Code: the device, a subagent, and the commit in the status of Git
    r"\b[0-9a-f]{64}\b",
    r"\ba[0-9a-f]{16}\b",
    r"(?<=Recent commits:\n)[0-9a-f]{7}\b",
    # Codex: the commit, and a command's piece of output
    r"\b[0-9a-f]{40}\b",
    r"(?<=Chunk ID: )[0-9a-f]{6}\b",
    # Copilot CLI: the time of a prompt
    r"(?<=<current_datetime>)[^<]+",
)
_NUMBERS = (
    # Claude Code: the time of a subagent
    r"(?<=duration_ms: )\d+",
    # Codex: the beginning of a turn, and the time of a command
    r"(?<=\"turn_started_at_unix_ms\":)\d+",
    r"(?<=Wall time: )\d+\.\d+",
    # Gemini CLI: calls, and the processes of commands
    r"(?<=_)\d{13}(?=_\d)",
    r"(?<=Process Group PGID: )\d+",
)


class Request(msgspec.Struct, frozen=True):
    """A request to a model: its characters without fleetd, and those that fleetd added, by kind.

    What the CLI writes around a text counts with it.
    """

    kind: Kind
    chars: int
    added: dict[str, int]

    @property
    def more(self) -> int:
        """How many characters fleetd added."""
        return sum(self.added.values())


class Recording(msgspec.Struct, frozen=True):
    """The requests of a session of one CLI; ``home`` is the name of the home that it ran in."""

    harness: str
    home: str
    asked: list[Asked]

    def of(self, kind: Kind) -> list[Any]:
        """Return the bodies of one kind, in order, without what differs from run to run."""
        return [self._normal(asked.body) for asked in self.asked if asked.kind == kind]

    def _normal(self, body: dict[str, Any]) -> Any:
        # In names of directories some CLIs write other characters.
        homes = {self.home, re.sub(r"[^0-9A-Za-z]", "-", self.home)}
        names = re.compile("|".join([*map(re.escape, homes), *_NAMES]))
        numbers = re.compile("|".join(_NUMBERS))

        def constant(text: str) -> str:
            return numbers.sub("0", names.sub(lambda found: "x" * len(found[0]), text))

        return _mapped(body, constant)


def size(body: Any) -> int:
    """Return how many characters a request has, as compact JSON."""
    return len(_json(body))


def compared(without: Recording, beside: Recording) -> list[Request]:
    """Return all requests but side requests, with what fleetd added to each, in order.

    Raises AssertionError where a request differs in anything else than what fleetd may say.
    """
    assert sorted(map(_json, without.of("side"))) == sorted(map(_json, beside.of("side")))
    kinds: tuple[Kind, ...] = ("turn", "compaction")
    found = {kind: iter(_each_compared(kind, without, beside)) for kind in kinds}
    return [next(found[asked.kind]) for asked in beside.asked if asked.kind in found]


def _each_compared(kind: Kind, without: Recording, beside: Recording) -> list[Request]:
    # A compaction in the background may come sooner or later, but not a turn.
    plain, told = without.of(kind), beside.of(kind)
    assert len(plain) == len(told), f"{len(plain)} and {len(told)} requests of kind {kind}"
    found = []
    for number, (one, other) in enumerate(zip(plain, told, strict=True), 1):
        rest, added = taken_out(without.harness, other)
        alike = _joined(one) == _joined(rest)
        assert alike, f"{kind} {number} of {without.harness}:\n{_difference(one, rest)}"
        found.append(Request(kind, size(one), added))
    return found


def taken_out(harness: str, body: Any) -> tuple[Any, dict[str, int]]:
    """Return a request without all that fleetd may say in it, and the characters of that."""
    counted: Counter[str] = Counter()
    frames = [re.compile(frame) for frame in _FRAMES[harness]]

    def count(found: re.Match[str]) -> str:
        said = _of_kinds(found["said"])
        counted.update(said)
        # What is around several is counted with the first of them.
        counted[next(iter(said))] += len(found[0]) - said.total()
        return ""

    def without(text: str) -> Any:
        for frame in frames:
            text, number = frame.subn(count, text)
            if number and not text:
                return _EMPTIED
        return text

    rest = _mapped(body, without)
    return rest, dict(counted)


def _of_kinds(said: str) -> Counter[str]:
    """Return how many characters of each kind a text of a hook has, in the order of the kinds."""
    counted = Counter[str]()
    for name, saying in SAYINGS.items():
        if chars := sum(len(found[0]) for found in re.finditer(saying, said)):
            counted[name] = chars
    return counted


def _mapped(value: Any, change: Callable[[str], Any]) -> Any:
    """Return a value of JSON with its texts changed; what was there for an emptied one goes too."""
    match value:
        case str():
            return change(value)
        case list():
            made = [_mapped(each, change) for each in value]
            left = [each for each in made if each is not _EMPTIED]
            return left if left or not made else _EMPTIED
        case dict():
            fields = {
                name: _mapped(each, change) for name, each in value.items() if name != _CACHED
            }
            if _EMPTIED not in fields.values():
                return fields
            if fields.keys() <= _BEARING:
                return _EMPTIED
            return {name: "" if each is _EMPTIED else each for name, each in fields.items()}
    return value


def _joined(value: Any) -> Any:
    """Return a request with parts of one message that are texts only put together.

    Gemini CLI takes one text for a message from a hook that runs before a request, and makes one
    part of it.
    """
    match value:
        case {"parts": list(parts)} if all(each.keys() == {"text"} for each in parts):
            return value | {"parts": "".join(each["text"] for each in parts)}
        case dict():
            return {name: _joined(each) for name, each in value.items()}
        case list():
            return [_joined(each) for each in value]
    return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _difference(one: Any, other: Any) -> str:
    """Return the lines of two requests that differ."""
    before, after = list(_lines(one)), list(_lines(other))
    return "\n".join(difflib.unified_diff(before, after, "without", "with", lineterm="", n=0))


def _lines(value: Any, place: str = "") -> Iterator[str]:
    inner: Iterable[tuple[Any, Any]]
    match value:
        case dict():
            inner = sorted(value.items())
        case list():
            inner = (("", each) for each in value)
        case _:
            yield from (f"{place}: {line}" for line in str(value).split("\n"))
            return
    for name, each in inner:
        yield from _lines(each, f"{place}/{name}")
