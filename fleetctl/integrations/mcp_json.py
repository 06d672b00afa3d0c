"""An MCP server in the text of JSON settings: find, insert and remove it.

Everything else in the text stays byte for byte, and so does what a person added to our entry.
"""

from typing import Any

from .hooks import UnusableSettings
from .jsonc import Node, append, is_blank, layout, parse, remove


def found(text: str, section: str, name: str) -> Any:
    """Return the entry by a name, None where there is none; raises Broken and UnusableSettings."""
    node = _entry(text, section, name)
    return None if node is None else node.value()


def put_in(text: str, section: str, name: str, entry: dict[str, Any]) -> str:
    """Return the text with an entry in it; in an existing one, only differences change."""
    if is_blank(text):
        return text + layout({section: {name: entry}}, 2) + "\n"
    servers = _section(text, section)
    if servers is None:
        return append(text, parse(text), {name: entry}, key=section, levels=1)
    if servers.member(name) is None:
        return append(text, servers, entry, key=name)
    for key, value in entry.items():
        text = _set(text, section, name, key, value)
    return text


def _set(text: str, section: str, name: str, key: str, value: Any) -> str:
    node = _entry(text, section, name)
    assert node is not None  # noqa: S101 - the caller has seen it
    member = node.member(key)
    if member is None:
        return append(text, node, value, key=key)
    if member.value() == value:
        return text
    return text[: member.start] + layout(value) + text[member.end :]


def take_out(text: str, section: str, name: str, before: str | None) -> str | None:
    """Return the text without an entry, and without what came with it; None when nothing is left.

    ``before`` is the text as it was before the entry came, None when there was no file.
    """
    entry = found(text, section, name)
    if before is not None and put_in(before, section, name, entry) == text:
        return before
    servers = _section(text, section)
    assert servers is not None  # noqa: S101 - the entry is in it
    brought = before is None or is_blank(before) or _section(before, section) is None
    if len(servers.keys) > 1 or not brought:
        return remove(text, servers, servers.keys.index(name))
    root = parse(text)
    if len(root.keys) == 1 and (before is None or is_blank(before)):
        return before
    return remove(text, root, root.keys.index(section))


def _section(text: str, section: str) -> Node | None:
    if is_blank(text):
        return None
    root = parse(text)
    _check(root, "it holds")
    _check_once(root, section, "it")
    servers = root.member(section)
    if servers is not None:
        _check(servers, f'its "{section}" is')
    return servers


def _entry(text: str, section: str, name: str) -> Node | None:
    servers = _section(text, section)
    if servers is None:
        return None
    _check_once(servers, name, f'its "{section}"')
    return servers.member(name)


def _check(node: Node, begin: str) -> None:
    if node.kind != "object":
        raise UnusableSettings(f"{begin} no object")


def _check_once(node: Node, key: str, where: str) -> None:
    if node.keys.count(key) > 1:
        raise UnusableSettings(f'{where} has more than one "{key}"')
