"""Snapshot options: from a command line or a JSON document to a request."""

import json
import re
import sys
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any, get_args

from fleetd.protocol.patterns import (
    OutcomeKind,
    RunStatus,
    SnapshotSource,
    StepStatus,
    WindowPressure,
)

from ..args import CommandParser, UsageError, whole
from ..client.models import (
    DeclaredCompliance,
    DeclaredDigest,
    DeclaredHints,
    DeclaredOutcome,
    DeclaredStep,
    SnapshotRecord,
)
from ..context import absolute, cwd, this_agent

# No line that the daemon takes is longer.
MOST_BYTES = 1024 * 1024
# A name may have colons: it ends where the first verdict stands between two.
OUTCOME = re.compile(
    rf"({'|'.join(get_args(OutcomeKind))})"
    r":((?:(?!:(?:PASS|FAIL|WARN)(?::|$)).)+):(PASS|FAIL|WARN)"
    r"(?::([0-9]{0,16})(?::(.*))?)?",
    re.DOTALL,
)
OUTCOME_SHAPE = "KIND:NAME:RESULT[:MS[:SUMMARY]]"
# What --json-in says instead.
DESCRIBING = (
    *("source", "status", "plan", "step", "ordinal", "step_status", "next", "violation"),
    *("pressure", "protect", "outcome", "note"),
)


def options(parser: CommandParser) -> None:
    """Add the options that describe a run."""
    parser.add_argument(
        "--source", choices=get_args(SnapshotSource), help="what made you record (default: manual)"
    )
    parser.add_argument("--status", choices=get_args(RunStatus), help="how the run is")
    _step_options(parser)
    parser.add_argument(
        "--pressure", choices=get_args(WindowPressure), help="how full the context window is"
    )
    parser.add_argument(
        "--protect",
        action="append",
        metavar="PATH",
        help="a path or an id that must not be lost; may be repeated",
    )
    parser.add_argument(
        "--outcome",
        action="append",
        type=outcome,
        metavar=OUTCOME_SHAPE,
        help="how a command ended, such as 'shell:make test:FAIL:1200:2 tests failed'; KIND is "
        f"{_either(OutcomeKind)}, RESULT is PASS, FAIL or WARN; may be repeated",
    )
    parser.add_argument("--note", metavar="TEXT", help="say what the snapshot is for")
    parser.add_argument(
        "--json-in",
        metavar="FILE",
        help="the parameters of snapshot.record as a JSON object, instead of the options above "
        "but --run and --agent; - reads them from stdin",
    )


def _step_options(parser: CommandParser) -> None:
    parser.add_argument("--plan", metavar="PATH", help="the file the plan stands in")
    parser.add_argument("--step", completes="nothing", help="the step of the plan")
    parser.add_argument(
        "--ordinal", type=whole(1, 1_000_000), metavar="N", help="its place in the plan, from 1"
    )
    parser.add_argument("--step-status", choices=get_args(StepStatus), help="how the step is")
    parser.add_argument(
        "--next", action="append", metavar="TEXT", help="what comes next; may be repeated"
    )
    parser.add_argument(
        "--violation",
        action="append",
        metavar="TEXT",
        help="how the plan is not kept as plans are to be; may be repeated",
    )


def _either(literal: Any) -> str:
    *names, last = get_args(literal)
    return f"{', '.join(names)} or {last}"


def outcome(text: str) -> DeclaredOutcome:
    """Return the outcome that an argument tells of; raises ArgumentTypeError."""
    if (match := OUTCOME.fullmatch(text)) is None:
        raise ArgumentTypeError(
            f"expected {OUTCOME_SHAPE} with a KIND of {_either(OutcomeKind)}, a RESULT of PASS, "
            f"FAIL or WARN, and whole milliseconds; got {text!r}"
        )
    kind, name, result, ms, summary = match.groups()
    told = {"kind": kind, "name": name, "result": result, "duration_ms": int(ms or 0)}
    try:
        return _checked({**told, "summary": summary or ""})
    except ValueError as error:
        raise ArgumentTypeError(f"{error} of the outcome; got {text[:80]!r}") from error


def _checked(told: dict[str, Any]) -> DeclaredOutcome:
    """Return an outcome that can stand; raises ValueError."""
    # Imported here: hardly any command line has an outcome.
    import msgspec

    from fleetd.protocol.requests import snapshot

    msgspec.convert(told, snapshot.DeclaredOutcome)
    return DeclaredOutcome(**told)


def request(args: Namespace) -> SnapshotRecord | dict[str, Any]:
    """Return the request, or with ``--json-in`` its parameters as they were given.

    Those the daemon checks, which says best what is wrong with them.
    """
    if args.json_in is None:
        return SnapshotRecord(
            **run_of(args.run_id, args.agent) | {"cwd": cwd()},
            source=args.source or "manual",
            status=args.status,
            step_state=_step(args),
            context_digest=_digest(args),
            command_outcomes=args.outcome or [],
            note=args.note,
        )
    for name in DESCRIBING:
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"argument {option}: not allowed with --json-in, which says it all")
    return _completed(_read(args.json_in), args)


def run_of(run_id: str | None, agent: str | None) -> dict[str, str]:
    if given := _given(run_id=run_id, agent_id=agent):
        return given
    return {"agent_id": known} if (known := this_agent()) else {"cwd": cwd()}


def _step(args: Namespace) -> DeclaredStep | None:
    told = _given(
        plan_path=absolute(args.plan) if args.plan else args.plan,
        step_id=args.step,
        step_ordinal=args.ordinal,
        step_status=args.step_status,
        todo_compliance=_compliance(args.violation),
        resume_hints=DeclaredHints(next_actions=args.next) if args.next else None,
    )
    return DeclaredStep(**told) if told else None


def _compliance(violations: list[str] | None) -> DeclaredCompliance | None:
    return DeclaredCompliance(result="FAIL", violations=violations) if violations else None


def _digest(args: Namespace) -> DeclaredDigest | None:
    told = _given(window_pressure=args.pressure, protected_artifacts=args.protect)
    return DeclaredDigest(**told) if told else None


def _given(**told: Any) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value is not None}


def _read(name: str) -> dict[str, Any]:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"argument --json-in: cannot read {name}: {reason}") from error
    if len(data) > MOST_BYTES:
        raise UsageError(f"argument --json-in: {name} is longer than {MOST_BYTES} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"argument --json-in: not a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise UsageError("argument --json-in: not a JSON object")
    return found


def _completed(parameters: dict[str, Any], args: Namespace) -> dict[str, Any]:
    """Return the parameters with what names the run, unless they do so themselves."""
    for name, value in (("run_id", args.run_id), ("agent_id", args.agent)):
        if value is not None and name in parameters:
            raise UsageError(f"argument --json-in: {name} is given twice, there and here")
    named = {"run_id", "agent_id", "cwd"} & parameters.keys()
    # The directory goes along whatever else names the run: nothing is recorded of an ignored one.
    parameters = {"cwd": cwd(), **parameters}
    if args.run_id is None and args.agent is None and named:
        return parameters
    return {**parameters, **run_of(args.run_id, args.agent)}
