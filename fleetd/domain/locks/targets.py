"""Targets: the files that a lease covers, and whether two leases have one in common.

A target is a file, a directory with all in it, or the files of a directory that match a pattern in
the syntax of gitignore. Whether two targets overlap is decided exactly for names, ``*``, ``**`` and
``?``. For character classes the answer may be yes by mistake, never no.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from ...protocol.errors import InvalidParams
from ...protocol.records import Record
from ..core.tx import Row

# These are exponents of the time that a regular expression takes.
STARS_IN_A_NAME, DEEP_PARTS = 3, 3
# Longer paths are matched by our own algorithm, whose steps only grow with the product of lengths.
REGEX_CHARS = 256
# Longer names with wildcards count as "*": comparing two of them takes too long.
_STEPS = 100_000
_PATTERNS = 20_000

_WILD = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_CLASS = re.compile(r"(?<!\\)(?:\\\\)*\[")
# A class without a range that can contain a slash.
_TAME_CLASS = re.compile(r"\[(?:[A-Za-z0-9_]-[A-Za-z0-9_]|[A-Za-z0-9_])+-?\]")
# A name that every name matches, or nearly every one.
_EVERYTHING = re.compile(r"\**\??\**")

_ESCAPED_SLASH = re.compile(r"(?<!\\)(?:\\\\)*\\(?:/|$)")

# A name of a path as tokens: a character, or one of these.
_ANY, _ONE = "*", "?"
_Name = tuple[str, ...]
# Any number of names, including none.
_DEEP: _Name = ("**",)
_ANY_NAME: _Name = (_ANY,)


class Target(Record, frozen=True):
    """The files that a lease covers; ``path`` is unique among targets of one ``directory``.

    For a directory, both are its key, with the slash. For a pattern, ``path`` is the key of its
    directory and the pattern, which begins in that directory.
    """

    path: str
    directory: str | None = None
    """None for a file."""

    @property
    def pattern(self) -> str:
        """Return the pattern in the directory; empty for a file and for a whole directory."""
        return self.path[len(self.directory) :] if self.directory is not None else ""


def target_of(row: Row) -> Target:
    """Return the target of a lock, or of a wait, from its row."""
    return Target(path=row["normalized_path"], directory=row["directory"])


class ParsedPattern(Struct, frozen=True):
    """A requested pattern, relative to a directory.

    It first goes up ``parents`` directories, then down into ``names``. ``rest`` matches from there
    on.
    """

    parents: int
    names: tuple[str, ...]
    rest: str

    @property
    def is_everything(self) -> bool:
        """Return whether it covers all files of the directory that it is relative to."""
        return not self.names and all(map(_EVERYTHING.fullmatch, self.rest.split("/")))


def parse_pattern(text: str) -> ParsedPattern:
    """Parse a pattern of gitignore; raises InvalidParams with the reason for one that is refused.

    A pattern without a slash before its end matches at any depth. It may begin with ``./`` and
    ``../``.
    """
    _check(text)
    names = [name for name in text.split("/") if name not in ("", ".")]
    if not text.startswith(("./", "../")) and len(names) == 1 and names[0] not in ("..", "**"):
        names.insert(0, "**")
    parents, kept = 0, list[str]()
    for name in names:
        if name != "..":
            if name != "**" or kept[-1:] != ["**"]:
                kept.append(name)
        elif not kept:
            parents += 1
        elif _WILD.search(kept.pop()):
            raise _refused(text, "it goes up with .. from a wildcard")
    if text.endswith("/"):  # what is in a directory of that name
        kept = ["*", "**"] if kept == ["**"] else [*kept, "**"] if kept[-1:] != ["**"] else kept
    if not kept:
        raise _refused(text, "it names no file", "Give the directory as file, with a slash.")
    if kept[-1] != kept[-1].rstrip():
        raise _refused(text, "its last name ends with a blank")
    fixed = next((at for at, name in enumerate(kept) if _WILD.search(name)), len(kept))
    fixed = min(fixed, len(kept) - 1)
    rest = "/".join(kept[fixed:])
    _check_cost(text, kept[fixed:])
    _check_compiles(text, rest)
    return ParsedPattern(parents, tuple(map(_unescaped, kept[:fixed])), rest)


def _check(text: str) -> None:
    if text.startswith(("/", "~/")):
        raise _refused(text, "it is absolute", "Give it relative to the directory: 'src/**'.")
    if text != text.strip():
        raise _refused(text, "it begins or ends with a blank")
    if _ESCAPED_SLASH.search(text):
        raise _refused(text, "it has a backslash before a slash, or at its end")
    if text.startswith(("!", "#")):
        why = {"!": "it excludes files", "#": "it is a comment"}[text[0]]
        raise _refused(text, why, f"For a name that begins so: \\{text[0]}…")


def _check_cost(text: str, names: Sequence[str]) -> None:
    if names.count("**") > DEEP_PARTS:
        raise _refused(text, f"it has more than {DEEP_PARTS} times **")
    if any(name != "**" and name.count("*") > STARS_IN_A_NAME for name in names):
        raise _refused(text, f"a name in it has more than {STARS_IN_A_NAME} times *")


def _check_compiles(text: str, rest: str) -> None:
    if _regex(rest) is None:
        raise _refused(text, "it matches no file", "See man gitignore for the syntax.")


def _refused(text: str, why: str, hint: str = "See fleetctl lock acquire --help.") -> InvalidParams:
    return InvalidParams(f"The pattern {text!r} is refused: {why}.", hint=hint, field="pattern")


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


@lru_cache(_PATTERNS)
def _regex(pattern: str) -> re.Pattern[str] | None:
    """Return the expression that matches a pattern's files by their paths in its directory."""
    # Most stores never have a pattern, and this import takes as long as some hundred locks.
    from pathspec.patterns.gitignore import GitIgnorePatternError
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    try:
        return GitIgnoreSpecPattern(f"/{pattern}").regex
    except (GitIgnorePatternError, re.error):
        return None


def parents(key: str) -> list[str]:
    """Return the keys of all directories around a key's file, and its own as a directory."""
    # A project's name may contain parts that look like directories: no lease covers them.
    return [key[: found.end()] for found in re.finditer(r"[/:]", key)] + [f"{key}/"]


def overlap(one: Target, other: Target) -> bool:
    """Return whether both may cover some file."""
    if one.directory is None and other.directory is None:
        return one.path == other.path
    if one.directory is None or (
        other.directory is not None and len(other.directory) < len(one.directory)
    ):
        one, other = other, one
    assert one.directory is not None  # noqa: S101
    begin = other.path if other.directory is None else other.directory
    if f"{begin}/" == one.directory:  # a file where the other one has a directory
        return not one.pattern
    if not begin.startswith(one.directory):
        return False
    if not one.pattern:
        return True
    inside = begin[len(one.directory) :]
    if other.directory is None:
        return _covers(one.pattern, inside)
    below = [_plain(name) for name in inside.split("/")[:-1]]
    return _meet(_names(one.pattern), (*below, *_names(other.pattern)))


def literal_of(pattern: str) -> str:
    """Return the longest text without a wildcard in a pattern: every covered file has it.

    It is empty for a whole directory.
    """
    found = [""]
    for name in _names(pattern):
        for token in () if name == _DEEP else name:
            if token in (_ANY, _ONE):
                found.append("")
            else:
                found[-1] += token[-1]  # a literal wildcard without its backslash
        found.append("")
    return max(found, key=len)


def is_exact(target: Target) -> bool:
    """Return whether overlaps with a target can be decided exactly."""
    return not _CLASS.search(target.pattern)


def _covers(pattern: str, path: str) -> bool:
    """Return whether a pattern matches a path, both in one directory."""
    if len(path) > REGEX_CHARS:
        return _meet(_names(pattern), tuple(map(_plain, path.split("/"))))
    regex = _regex(pattern)
    return regex is not None and regex.search(path) is not None


def _plain(name: str) -> _Name:
    """Return the name of a file or directory as tokens; a wildcard in it is a literal one."""
    return tuple(f"\\{each}" if each in (_ANY, _ONE) else each for each in name)


@lru_cache(_PATTERNS)
def _names(pattern: str) -> tuple[_Name, ...]:
    """Return a pattern, empty for a whole directory, as the names in the paths of its files.

    A pattern that matches a directory covers all its files.
    """
    if not pattern:
        return (_DEEP,)
    names = list[_Name]()
    for name in pattern.split("/"):
        if name == "**":
            names.append(_DEEP)
            continue
        tokens = tuple(_tokens(name))
        if tokens[-1:] == _DEEP:  # a class that may continue after a slash
            return (*names, (*tokens[:-1], _ANY), _DEEP)
        names.append(tokens)
    # "src/**" covers the content of the directory, but not a file of that name.
    return (*names[:-1], _ANY_NAME, _DEEP) if names[-1] == _DEEP else (*names, _DEEP)


def _tokens(name: str) -> Iterator[str]:
    at = 0
    while at < len(name):
        here = name[at]
        if here == "[":
            tame = _TAME_CLASS.match(name, at)
            if tame is None:
                yield _DEEP[0]
                return
            yield _ONE
            at = tame.end()
        elif here == "\\":
            # A literal wildcard becomes two characters: a single one would be a real wildcard.
            yield name[at : at + 2] if name[at + 1 : at + 2] in "*?" else name[at + 1 : at + 2]
            at += 2
        else:
            yield here
            at += 1


def _meet(one: Sequence[_Name], other: Sequence[_Name]) -> bool:
    """Return whether some path matches both."""
    # reached[n]: the names of one so far and the first n of the other can match a common path.
    reached = _step_deep([True] + [False] * len(other), other)
    for name in one:
        if name == _DEEP:
            first = next((at for at, here in enumerate(reached) if here), len(reached))
            reached = [at >= first for at in range(len(reached))]
            continue
        following = [False] * len(reached)
        for at, there in enumerate(other):
            if there == _DEEP:
                # "**" can also match this name, and continue.
                following[at] |= reached[at]
            elif reached[at] and _names_meet(name, there):
                following[at + 1] = True
        if not any(following):
            return False
        reached = _step_deep(following, other)
    return reached[-1]


def _step_deep(reached: list[bool], other: Sequence[_Name]) -> list[bool]:
    for at, there in enumerate(other):
        if there == _DEEP and reached[at]:
            reached[at + 1] = True
    return reached


def _names_meet(one: _Name, other: _Name) -> bool:
    """Return whether some name matches both."""
    if _ANY not in one and _ANY not in other:
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(a == b or _ONE in (a, b) for a, b in pairs)
    if len(one) * len(other) > _STEPS:
        return True
    reached = _step_any([True] + [False] * len(other), other)
    for token in one:
        following = [False] * len(reached)
        for at, there in enumerate(other):
            if there == _ANY:
                following[at] |= reached[at]
            elif reached[at] and token != _ANY and (token == there or _ONE in (token, there)):
                following[at + 1] = True
        if token == _ANY:
            first = next((at for at, here in enumerate(reached) if here), len(reached))
            following = [at >= first for at in range(len(reached))]
        reached = _step_any(following, other)
    return reached[-1]


def _step_any(reached: list[bool], other: _Name) -> list[bool]:
    for at, there in enumerate(other):
        if there == _ANY and reached[at]:
            reached[at + 1] = True
    return reached
