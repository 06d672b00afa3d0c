"""``fleetctl call``: any method of the daemon, for people who build tools."""

import sys
from argparse import Namespace
from typing import Any

import msgspec

from .. import render
from ..client import connect
from ..options import Subparsers, UsageError, command

EXAMPLES = """\
  fleetctl call system.hello
  fleetctl call mission.list '{"status": "in_progress"}'
  echo '{"title": "Add login"}' | fleetctl call mission.create -"""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers, "call", run, "Call a method and print its result as JSON.", EXAMPLES
    )
    parser.add_argument("method", metavar="METHOD", help="such as mission.list; see rpc.discover")
    parser.add_argument(
        "params",
        metavar="JSON",
        nargs="?",
        default="{}",
        help="the parameters, an object or an array; - reads them from stdin",
    )


def run(args: Namespace) -> int:
    """Call the method."""
    params = _parameters(sys.stdin.read() if args.params == "-" else args.params)
    with connect() as client:
        render.print_json(client.call_raw(args.method, params))
    return 0


def _parameters(text: str) -> Any:
    try:
        params = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"argument JSON: not valid JSON: {error}") from error
    if not isinstance(params, dict | list):
        raise UsageError(f"argument JSON: expected an object or an array; got {text!r}")
    return params
