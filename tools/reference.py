"""docs/reference: every method, record and error, from the OpenRPC document and a conversation."""

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from fleetd.protocol.errors import KINDS, FleetError
from fleetd.protocol.methods import METHODS
from fleetd.protocol.patterns import ID_PREFIXES
from fleetd.protocol.request import BY_NAME_ONLY, LongMutation, Request
from fleetd.protocol.types import PATTERN_MEANINGS
from fleetd.server.openrpc import document

from .conversation import exchanges

PLACE = "docs/reference"
NOTE = "<!-- Written by make generate from the code; do not edit. -->"
NOUNS = {
    "system": "The daemon itself",
    "rpc": "The protocol about itself",
    "mission": "Missions",
    "sortie": "Sorties",
    "agent": "Agents",
    "attention": "What agents do and need",
    "session": "Sessions",
    "machine": "Machines",
    "lock": "Locks",
    "commit": "Commits of Git",
    "message": "Messages",
    "note": "Notes that last",
    "event": "Events",
    "search": "Search",
    "cursor": "Cursors",
    "checkpoint": "Checkpoints",
    "error": "Errors that agents meet",
    "snapshot": "Snapshots of runs",
    "recovery": "Recovery",
    "handoff": "Hand-offs",
    "stats": "Statistics",
    "fleet": "The fleet at a moment",
    "timeline": "Timelines",
    "report": "Reports",
    "usage": "Tokens",
    "hook": "Hooks",
}
INTRODUCTION = """\
Every method of the protocol, every record it answers with, and every error. How messages are
framed, what a retry does and how events are followed is told in [protocol.md](../protocol.md);
clients in several languages are in [clients.md](../clients.md); every type of event is in
[events.md](../events.md). A running daemon says the same as a document of
[OpenRPC](https://spec.open-rpc.org): `fleetctl call rpc.discover`.

The requests and replies shown were exchanged with a real daemon; only ids, times, sizes and places
were replaced, and long lists cut short."""
RECORDS = """\
What methods answer with, and what some of their parameters hold. Times are ISO 8601 UTC with
milliseconds, durations whole numbers of ms, sizes bytes. Records may get further fields; a client
passes over those that it does not know."""
# Lines are as wide as on GitHub; a longer reply has one line for each field.
WIDTH = 100
WHOLE = 60


def files() -> dict[str, str]:
    """Return the pages by their paths."""
    described = json.loads(msgspec.json.encode(document()))
    examples = exchanges()
    by_noun: dict[str, list[dict[str, Any]]] = {noun: [] for noun in NOUNS}
    for method in described["methods"]:
        by_noun[method["name"].partition(".")[0]].append(method)
    made = {"README": _index(by_noun, examples), "records": _records(described)}
    for noun, methods in by_noun.items():
        parts = [f"# {NOUNS[noun]}", *(_method(each, examples) for each in methods)]
        made[noun] = "\n\n".join(parts)
    return {f"{PLACE}/{page}.md": f"{NOTE}\n\n{text}\n" for page, text in made.items()}


def _index(by_noun: dict[str, list[dict[str, Any]]], examples: dict[str, Any]) -> str:
    parts = ["# The protocol's reference", INTRODUCTION, "## Methods"]
    for noun, methods in by_noun.items():
        rows = [
            f"| [`{each['name']}`]({noun}.md#{_anchor(each['name'])}) | {_prose(each['summary'])} |"
            for each in methods
        ]
        parts.append(
            "\n".join([f"### {NOUNS[noun]}", "", "| method | what it does |", "|---|---|", *rows])
        )
    return "\n\n".join([*parts, _errors(), *_exchange(examples["lock_conflict"])])


def _errors() -> str:
    rows = [
        f"| {code} | `{kind.kind}` | {_prose(_first(kind))} | {kind.exit_status} |"
        for code, kind in KINDS.items()
    ]
    return "\n".join(
        [
            "## Errors",
            "",
            "`error.message` is one sentence for a person; `error.data` has `kind`, `hint` (what",
            "to do next) and the values concerned. When to try again is told in",
            "[protocol.md](../protocol.md#errors). The last column is what `fleetctl` exits with.",
            "",
            "| code | kind | meaning | exit |",
            "|---|---|---|---|",
            *rows,
            "",
            "One of them:",
        ]
    )


def _first(kind: type[FleetError]) -> str:
    text = inspect.getdoc(kind) or ""
    return re.sub(r" \(source: [^)]*\)", "", text)


def _method(method: dict[str, Any], examples: dict[str, Any]) -> str:
    name = method["name"]
    request = METHODS[name]
    parts = [f"## {name}", f"{_prose(method['description'])} {_kind(request)}"]
    params = [each for each in method["params"] if each["name"] not in BY_NAME_ONLY]
    if params:
        parts.append(_parameters(params))
    else:
        parts.append("It takes no parameters.")
    parts.append(f"Result: {_type(method['result']['schema'])}")
    return "\n\n".join([*parts, *_exchange(examples[name])])


def _kind(request: type[Request[Any]]) -> str:
    if not request.changes:
        return "It changes nothing."
    key = "an [`idempotency_key`](../protocol.md#doing-a-thing-once)"
    if issubclass(request, LongMutation):
        other = "a [`progress_token`](../protocol.md#what-takes-long)"
        return f"It takes {key} and {other} as well."
    return f"It takes {key} as well."


def _parameters(params: list[dict[str, Any]]) -> str:
    rows = ["| parameter | type | default | meaning |", "|---|---|---|---|"]
    for param in params:
        schema = dict(param["schema"])
        default = schema.get("default")
        shown = "**required**" if param["required"] else _default(default)
        kind = _type(schema)
        if prefix := ID_PREFIXES.get(param["name"].removesuffix("_id")):
            kind = f"an id, `{prefix}-...`"
        rows.append(f"| `{param['name']}` | {kind} | {shown} | {param['description']} |")
    return "\n".join(rows)


def _default(value: Any) -> str:
    return "" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def _exchange(pair: tuple[str, Any]) -> Iterator[str]:
    request, reply = pair
    text = json.dumps(reply, ensure_ascii=False)
    if len(text) > WIDTH:
        text = json.dumps(reply, ensure_ascii=False, indent=2)
    yield f"```json\n{request}\n```"
    yield f"```json\n{_flatter(text)}\n```"


def _flatter(text: str) -> str:
    """Put short lists and objects on one line, as a person would."""
    while True:
        made = re.sub(r"[\[{]\n\s*[^\[\]{}]*?\n\s*[\]}](?=,?\n)", _on_one_line, text)
        if made == text:
            return text
        text = made


def _on_one_line(found: re.Match[str]) -> str:
    line = re.sub(r"\n\s*", " ", found[0])
    line = re.sub(r"^([\[{]) ", r"\1", re.sub(r" ([\]}])$", r"\1", line))
    return line if len(line) <= WHOLE else found[0]


def _records(described: dict[str, Any]) -> str:
    schemas = described["components"]["schemas"]
    parts = ["# The records", RECORDS]
    for name in sorted(schemas, key=_title):
        schema = schemas[name]
        parts += [f"## {_title(name)}", _prose(schema.get("description", ""))]
        rows = ["| field | type |", "|---|---|"]
        needed = schema.get("required", ())
        for field, kind in schema["properties"].items():
            note = "" if field in needed else "; may be left out"
            rows.append(f"| `{field}` | {_type(kind)}{note} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def _title(name: str) -> str:
    return name.rpartition(".")[2]


def _type(schema: dict[str, Any]) -> str:
    """Return a schema in words."""
    if "$ref" in schema:
        name = _title(schema["$ref"].rpartition("/")[2])
        return f"[{name}](records.md#{_anchor(name)})"
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
        nullable = len(kinds) < len(schema["anyOf"]) and "default" not in schema
        return " or ".join(map(_type, kinds)) + (" or null" if nullable else "")
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    return _plain(schema)


def _plain(schema: dict[str, Any]) -> str:
    match schema.get("type"):
        case "string":
            return _text(schema)
        case "array":
            most = f", at most {schema['maxItems']:,}" if "maxItems" in schema else ""
            return f"list of {_type(schema.get('items', {}))}{most}"
        case "integer" | "number" as kind:
            return ("whole number" if kind == "integer" else "number") + _bounds(schema)
        case "boolean":
            return "true or false"
        case "object":
            return "object"
        case "null":
            return "null"
    return "anything"


def _text(schema: dict[str, Any]) -> str:
    pattern = schema.get("pattern", "")
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if pattern in PATTERN_MEANINGS and most is None:
        return re.split(r" \(| that | such ", PATTERN_MEANINGS[pattern])[0].replace("<", "\\<")
    return f"text, {least:,} to {most:,} characters" if most else "text"


def _bounds(schema: dict[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if most is not None:
        return f", {least:,} to {most:,}"
    return f", {least:,} or more" if least is not None else ""


def _prose(text: str) -> str:
    """Return a docstring as Markdown: one paragraph, with its names in backticks."""
    plain = " ".join(re.sub(r" \(source: [^)]*\)", "", text).split())
    return plain.replace("``", "`").replace("|", "\\|")


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
