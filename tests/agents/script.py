"""What the scripted model says, whichever API it is asked through; must not know any vendor."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["turn", "compaction", "side"]

SUMMARY = "<analysis>It went well.</analysis>\n<summary>Work went on as planned.</summary>"


@dataclass(frozen=True)
class Call:
    """A call of one of the CLI's tools; ``input`` is a text for tools that take free text."""

    tool: str
    input: Any

    @property
    def json(self) -> str:
        return json.dumps(self.input)


@dataclass(frozen=True)
class Reply:
    """One answer of the model; ``full`` reports a nearly full context, so the CLI compacts next."""

    calls: tuple[Call, ...] = ()
    text: str = ""
    full: bool = False


def calls(*made: Call, full: bool = False) -> Reply:
    return Reply(calls=made, full=full)


def says(text: str, *, full: bool = False) -> Reply:
    return Reply(text=text, full=full)


@dataclass(frozen=True)
class Asked:
    """One request that the model received, and when."""

    kind: Kind
    path: str
    body: dict[str, Any]
    at: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        """Return the whole body as JSON, in which texts can be counted."""
        return json.dumps(self.body, ensure_ascii=False)


@dataclass
class Script:
    """The replies still to give, and every request so far.

    The CLI may ask from several threads at once. Whatever is asked after the last reply gets a
    farewell, so that no CLI runs on for ever; ``most`` bounds all requests together. Turns that
    come when they like, such as those of subagents, are answered by ``aside``: None leaves one to
    the script.
    """

    replies: list[Reply] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    beyond: int = 0
    most: int = 60
    aside: Callable[[Asked], Reply | None] = lambda _: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def plays(self, replies: Sequence[Reply]) -> None:
        """Add replies to the script."""
        with self._lock:
            self.replies += replies

    def answer(self, asked: Asked) -> Reply | None:
        """Return what to say to a request, None when there were too many."""
        with self._lock:
            self.asked.append(asked)
            if len(self.asked) > self.most:
                return None
            if asked.kind == "compaction":
                return says(SUMMARY)
            if asked.kind == "side":
                return says("{}")
            if (reply := self.aside(asked)) is not None:
                return reply
            if not self.replies:
                self.beyond += 1
                return says("That is all.")
            return self.replies.pop(0)

    def kinds(self) -> list[Kind]:
        """Return the kinds of all requests but side requests, in order."""
        return [asked.kind for asked in self.asked if asked.kind != "side"]

    def asked_in(self, kind: Kind) -> list[Asked]:
        return [asked for asked in self.asked if asked.kind == kind]

    def before_compaction(self) -> list[Asked]:
        """Return the turns' requests before the first compaction."""
        first = next(n for n, asked in enumerate(self.asked) if asked.kind == "compaction")
        return [asked for asked in self.asked[:first] if asked.kind == "turn"]

    def after_compactions(self) -> list[Asked]:
        """Return the first request of a turn after each compaction."""
        return [now for before, now in self._pairs() if before == "compaction" != now.kind]

    def _pairs(self) -> Iterator[tuple[Kind, Asked]]:
        before: Kind = "side"
        for asked in self.asked:
            if asked.kind != "side":
                yield before, asked
                before = asked.kind
