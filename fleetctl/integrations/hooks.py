"""Hooks in the text of a settings file: find, insert and remove them.

Other people's hooks, comments, order and formatting stay byte for byte. Ours are appended and
never inserted before others: Codex trusts hooks by their position.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .hook_command import is_ours, quoted
from .jsonc import Node, append, is_blank, layout, parse, remove, replace
from .registry import Harness, HookEvent, in_parts

Wanted = Sequence[tuple[HookEvent, str]]


class UnusableSettings(Exception):
    """A settings file contains what its harness cannot read; the text says what and where."""


class InstalledHook(NamedTuple):
    """A hook of ours: its event, its command, and the containers around it.

    ``command`` is one line even for a hook that is started without a shell.
    """

    event: str
    command: str
    node: Node
    within: tuple[tuple[Node, int], ...]
    # Its arguments, if it is started without a shell.
    args: Node | None = None


def found(text: str, harness: Harness) -> list[InstalledHook]:
    """Return our hooks in a text, in order; raises Broken and UnusableSettings."""
    return list(_ours(_root(text, harness), harness))


def put_in(text: str, harness: Harness, wanted: Wanted) -> str:
    """Return the text with our hooks in it; existing ones get the wanted command."""
    if is_blank(text):
        return text + _document(harness, wanted)
    root = _root(text, harness)
    if harness.version is not None and root.member("version") is None:
        text = append(text, root, harness.version, key="version")
        root = parse(text)
    if root.member(harness.section) is None:
        return append(text, root, _section(harness, wanted), key=harness.section, levels=2)
    for event, command in wanted:
        text = _put(text, harness, event, command)
    return text


def take_out(text: str, harness: Harness, before: str | None) -> str | None:
    """Return the text without our hooks and what they added; None when nothing is left.

    ``before`` is the text before the hooks were added, None when there was no file. Containers
    that were empty there stay. If nothing else has changed since, the result is ``before``.
    """
    if before is not None and _put_again(text, harness, before) == text:
        return before
    old = _readable(before, harness)
    while ours := found(text, harness):
        text = _cut(text, ours[-1], old, harness)
    return _without_bare_root(text, harness, before, old)


def _root(text: str, harness: Harness) -> Node:
    """Return a text's object; raises UnusableSettings for an unknown structure."""
    if is_blank(text):
        text = "{}"
    root = parse(text)
    _check(root.kind == "object", f"it holds no object but {_described(root)}")
    name = harness.section
    _check(root.keys.count(name) < 2, f'it has more than one "{name}"')
    version, hooks = root.member("version"), root.member(name)
    if harness.version is not None and version is not None:
        _check(
            version.scalar == harness.version,
            f'its "version" is not {harness.version}, so its format is one that we do not know',
        )
    if hooks is not None:
        _check(hooks.kind == "object", f'its "{name}" is no object but {_described(hooks)}')
        for event, node in zip(hooks.keys, hooks.items, strict=True):
            _check(hooks.keys.count(event) < 2, f'its "{name}" has more than one "{event}"')
            known = event in {each.name for each in harness.events}
            _check(
                node.kind == "array" or not known,
                f'its "{name}.{event}" is no list but {_described(node)}',
            )
    return root


def _check(good: bool, complaint: str) -> None:
    if not good:
        raise UnusableSettings(complaint)


def _described(node: Node) -> str:
    kinds = {"object": "an object", "array": "a list", "string": "a text"}
    return kinds.get(node.kind, json.dumps(node.scalar))


def _ours(root: Node, harness: Harness) -> Iterator[InstalledHook]:
    hooks = root.member(harness.section)
    if hooks is None:
        return
    for at_event, (event, entries) in enumerate(zip(hooks.keys, hooks.items, strict=True)):
        for at_entry, entry in enumerate(entries.items if entries.kind == "array" else ()):
            above = (
                (root, root.keys.index(harness.section)),
                (hooks, at_event),
                (entries, at_entry),
            )
            handlers = None if harness.grouped is False else entry.member("hooks")
            if handlers is not None and handlers.kind == "array":
                for at_handler, handler in enumerate(handlers.items):
                    yield from _one(event, handler, harness, (*above, (handlers, at_handler)))
            elif not harness.grouped:
                yield from _one(event, entry, harness, above)


def _one(
    event: str, handler: Node, harness: Harness, within: tuple[tuple[Node, int], ...]
) -> Iterator[InstalledHook]:
    node = handler.member(harness.command_key)
    if node is None or not isinstance(node.scalar, str):
        return
    args, command = handler.member("args"), node.scalar
    if args is not None and args.kind == "array":
        command = " ".join([quoted(command), *(str(each) for each in args.value())])
    if is_ours(command, harness):
        yield InstalledHook(event, command, node, within, args)


def _put(text: str, harness: Harness, event: HookEvent, command: str) -> str:
    root = _root(text, harness)
    hooks = root.items[root.keys.index(harness.section)]
    entries = hooks.member(event.name)
    if entries is None:
        return append(text, hooks, [harness.entry(command, event)], key=event.name, levels=1)
    ours = [each for each in _ours(root, harness) if each.event == event.name]
    for each in reversed(ours):
        if each.command != command:
            text = _rewritten(text, each, command)
    return text if ours else append(text, entries, harness.entry(command, event))


def _rewritten(text: str, hook: InstalledHook, command: str) -> str:
    """Return the text with a hook's command replaced, with or without a shell."""
    program, args = in_parts(command)
    container, index = hook.within[-1]
    handler = container.items[index]
    known = hook.args
    if known is None:
        # Change the later part of the text first: the positions before it stay valid.
        text = text if args is None else append(text, handler, args, key="args")
        return replace(text, hook.node, program)
    at = handler.items.index(known)

    def with_args(text: str) -> str:
        return remove(text, handler, at) if args is None else replace(text, known, args)

    if known.start > hook.node.start:
        return replace(with_args(text), hook.node, program)
    return with_args(replace(text, hook.node, program))


def _section(harness: Harness, wanted: Wanted) -> dict[str, Any]:
    return {event.name: [harness.entry(command, event)] for event, command in wanted}


def _document(harness: Harness, wanted: Wanted) -> str:
    version = {} if harness.version is None else {"version": harness.version}
    document = version | {harness.section: _section(harness, wanted)}
    return layout(document, 3) + "\n"


def _put_again(text: str, harness: Harness, before: str) -> str | None:
    """Return ``before`` with our hooks inserted as they are in ``text``."""
    known = {event.name: event for event in harness.events}
    ours = found(text, harness)
    again = [(known.get(each.event, HookEvent(each.event)), each.command) for each in ours]
    try:
        return put_in(before, harness, again) if again else None
    except (ValueError, UnusableSettings):
        return None


def _readable(before: str | None, harness: Harness) -> tuple[str, Node] | None:
    """Return the earlier text and its object; None without a text or a usable object."""
    if before is None or is_blank(before):
        return None
    try:
        return before, _root(before, harness)
    except (ValueError, UnusableSettings):
        return None


def _cut(text: str, ours: InstalledHook, old: tuple[str, Node] | None, harness: Harness) -> str:
    """Remove one hook, and every container above it that becomes empty.

    A container that existed before stays; one that was empty gets its old text back.
    """
    earlier = _earlier(ours, old, harness)
    for (container, index), was in reversed(list(zip(ours.within, earlier, strict=True))):
        alone = len(container.items) == 1
        if alone and was is not None and old is not None and not was.items:
            return text[: container.start] + old[0][was.start : was.end] + text[container.end :]
        if not alone or was is not None or container is ours.within[0][0]:
            return remove(text, container, index)
    raise AssertionError


def _earlier(
    ours: InstalledHook, old: tuple[str, Node] | None, harness: Harness
) -> list[Node | None]:
    """Return the earlier node of each container above a hook; None where there was none."""
    root = old[1] if old else None
    hooks = root.member(harness.section) if root else None
    entries = hooks.member(ours.event) if hooks else None
    return [root, hooks, entries, None][: len(ours.within)]


def _without_bare_root(
    text: str, harness: Harness, before: str | None, old: tuple[str, Node] | None
) -> str | None:
    """Remove the version that came with our hooks; return ``before`` if all text was ours."""
    root = parse(text)
    brought = old is None or old[1].member("version") is None
    if root.keys == ["version"] and harness.version is not None and brought:
        text = remove(text, root, 0)
        root = parse(text)
    nothing_before = before is None or is_blank(before)
    return before if nothing_before and not root.keys else text
