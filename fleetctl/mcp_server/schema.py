"""Arguments of a tool: a Struct of the protocol's own types, as a schema and as a check of values.

An agent reads the schema with every request to its model. So the schema contains only what the
agent needs to know; the limits that it leaves out are still checked.
"""

import re
from typing import Any, TypeVar

import msgspec

from fleetd.protocol import validation
from fleetd.protocol.display import shown
from fleetd.protocol.errors import InvalidParams

A = TypeVar("A", bound="Arguments")

_KEPT_KEYS = ("type", "enum", "items", "description", "minimum", "maximum")


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of one tool."""


def schema(arguments: type[Arguments]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, as short as it can be."""
    (_,), known = msgspec.json.schema_components([arguments])
    return _brief(known[arguments.__name__], known)


def _brief(subschema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in subschema:
        return _brief(known[subschema["$ref"].rpartition("/")[2]], known)
    if "anyOf" in subschema:  # a value or null: omitting the argument means the same
        whole = next(each for each in subschema["anyOf"] if each.get("type") != "null")
        return _brief({**whole, **{k: v for k, v in subschema.items() if k != "anyOf"}}, known)
    brief = {key: subschema[key] for key in _KEPT_KEYS if key in subschema}
    if "enum" in brief:
        brief["type"] = "string"  # not every model accepts an enum without a type
    if "items" in brief:
        brief["items"] = _brief(brief["items"], known)
    if brief.get("type") == "object":
        brief.pop("description", None)  # the Struct's own, which is for programmers
        parts = subschema.get("properties", {})
        brief["properties"] = {name: _brief(part, known) for name, part in parts.items()}
        if subschema.get("required"):
            brief["required"] = subschema["required"]
    return brief


def taken(arguments: type[A], given: dict[str, Any] | None) -> A:
    """Return the arguments that a tool was given; raises InvalidParams.

    Models send null for what they leave out.
    """
    named = {key: value for key, value in (given or {}).items() if value is not None}
    try:
        return msgspec.convert(named, arguments)
    except msgspec.ValidationError as error:
        raise _explained(arguments, named, str(error)) from error


def _explained(arguments: type[Arguments], named: dict[str, Any], text: str) -> InvalidParams:
    problem, where = validation.split(text)
    inside = f" in {where}" if where else ""
    known = ", ".join(arguments.__struct_fields__) or "none"
    if match := re.match(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        name = shown(match[1])
        return InvalidParams(f"There is no argument {name}{inside}.", hint=f"Arguments: {known}.")
    if match := re.match(r"Object missing required field `(.*)`", problem):
        return InvalidParams(f"{match[1]} is missing{inside}.", hint="Call again with it.")
    field = where.partition(".")[0].partition("[")[0]
    got = f", got {shown(named[where])}" if where in named else ""
    return InvalidParams(
        f"{where or 'the arguments'}: expected {_expected(arguments, where, problem)}{got}.",
        hint="Call again with another value.",
        field=field,
    )


def _expected(arguments: type[Arguments], where: str, problem: str) -> str:
    if problem.startswith("Invalid enum value"):
        return f"one of {', '.join(_schema_at(arguments, where)['enum'])}"
    if problem.startswith("Expected `object`"):  # models send a title where a sortie should be
        needed = _schema_at(arguments, where).get("required", ())
        fields = ", ".join(f'"{name}": ...' for name in needed)
        return f"an object such as {{{fields}}}"
    return validation.expected(problem)


def _schema_at(arguments: type[Arguments], where: str) -> dict[str, Any]:
    """Return the schema at a place such as ``sorties[0].files``."""
    subschema = schema(arguments)
    for step in re.findall(r"\w+", where):
        subschema = subschema["items"] if step.isdigit() else subschema["properties"][step]
    return subschema
