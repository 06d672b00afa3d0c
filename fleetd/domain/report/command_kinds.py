"""Kinds of commands, judged by their words: those that run tests, and those that commit."""

import re
import shlex
from collections.abc import Iterator

# A command can be a whole script; what runs tests comes early.
LOOKED_AT = 2_000
_RUNNERS = frozenset(
    (
        *("pytest", "py.test", "tox", "nox", "unittest", "jest", "vitest", "mocha", "ava"),
        *("rspec", "phpunit", "pest", "ctest", "bats", "gotestsum", "playwright", "cypress"),
        *("karma", "tap", "nosetests", "nextest", "behave", "minitest", "bun-test"),
    )
)
# Programs that run tests, among much else, if a word after them names the tests.
_TOOLS = frozenset(
    (
        *("make", "gmake", "just", "task", "npm", "pnpm", "yarn", "bun", "deno", "cargo", "go"),
        *("dotnet", "mvn", "mvnw", "gradle", "gradlew", "mix", "rake", "rails", "swift", "flutter"),
        *("dart", "bazel", "meson", "zig", "sbt", "lein", "stack", "cabal", "ninja", "manage.py"),
        *("composer", "xcodebuild", "nx", "turbo", "hatch", "pdm", "django-admin"),
    )
)
_TEST_WORD = re.compile(r"(?:unit|integration|e2e|it)?[-_:]?tests?(?:$|[-_:.].*)")
# Words before the command that they run, with options of their own.
_WRAPPERS = frozenset(
    (
        *("env", "nice", "time", "timeout", "nohup", "sudo", "xvfb-run", "exec", "command"),
        *("uv", "uvx", "poetry", "pipenv", "rye", "npx", "pnpx", "bunx", "bundle", "coverage"),
        *("python", "python3", "node", "docker", "podman", "compose", "run", "exec", "-m"),
    )
)
_ASSIGNMENT = re.compile(r"\w+=")
_NUMBER = re.compile(r"[0-9.]+[smh]?")
_WORDS = re.compile(
    "test|spec|tox|nox|jest|mocha|karma|bats|behave|pest|playwright|cypress|tap|ava"
)
_BETWEEN = ";&|()\n"


def runs_tests(command: str) -> bool:
    """Return whether a command looks like one that runs tests."""
    head = command[:LOOKED_AT]
    return bool(_WORDS.search(head)) and any(map(_is_test, _simple_commands(head)))


def commits(command: str) -> bool:
    """Return whether a command runs ``git commit``."""
    head = command[:LOOKED_AT]
    return "commit" in head and any(map(_is_commit, _simple_commands(head)))


def _simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of each command in a shell line."""
    reader = shlex.shlex(command, posix=True, punctuation_chars=_BETWEEN)
    reader.whitespace, reader.commenters = " \t\r", ""
    try:
        words = list(reader)
    except ValueError:  # a quotation without an end
        words = command.split()
    simple: list[str] = []
    is_comment = False
    for word in words:
        is_comment = (is_comment or word.startswith("#")) and "\n" not in word
        if is_comment:
            continue
        if word.strip(_BETWEEN):
            simple.append(word)
        elif simple:
            yield simple
            simple = []
    if simple:
        yield simple


def _is_test(words: list[str]) -> bool:
    rest = _without_wrappers(words)
    if not rest:
        return False
    program = _program(rest[0])
    if program in _RUNNERS:
        return True
    return program in _TOOLS and any(_TEST_WORD.match(word) for word in rest[1:6])


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _without_wrappers(words: list[str]) -> list[str]:
    for number, word in enumerate(words):
        name = _program(word)
        known = name in _WRAPPERS or name.startswith("python3.")
        option = word.startswith("-") or _ASSIGNMENT.match(word) or _NUMBER.fullmatch(word)
        if not (known or option):
            return words[number:]
    return []


def _is_commit(words: list[str]) -> bool:
    rest = _without_wrappers(words)
    if not rest or _program(rest[0]) != "git":
        return False
    takes_value = False
    for word in rest[1:]:
        if takes_value:
            takes_value = False
        elif word.startswith("-"):
            takes_value = word in ("-C", "-c", "--git-dir", "--work-tree", "--namespace")
        else:
            return word == "commit"
    return False
