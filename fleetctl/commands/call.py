"""``fleetctl call``: any method of the daemon, for developers of tools."""

import json
import sys
from typing import Any

from ..args import Namespace, Subparsers, UsageError, command, whole_number
from ..client import Fleet
from ..client.methods import METHODS
from ..client.retry import mutation_timeout, new_key
from ..output import console

EXAMPLES = """\
  fleetctl call system.hello
  fleetctl call system.doctor --timeout 30
  fleetctl call mission.list '{"status": "in_progress"}'
  echo '{"title": "Add login"}' | fleetctl call mission.create -"""
# The longest that the daemon waits for a lock.
LONGEST_S = 7 * 86_400


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "call",
        run,
        "Call a method of the daemon, and print its result as JSON.",
        EXAMPLES,
    )
    parser.add_argument(
        "method", metavar="METHOD", help="a method such as mission.list; rpc.discover lists all"
    )
    parser.add_argument(
        "params",
        metavar="JSON",
        nargs="?",
        default="{}",
        help="the parameters, an object or an array; - reads them from stdin",
    )
    parser.add_argument(
        "--timeout",
        type=whole_number(1, LONGEST_S),
        metavar="SECONDS",
        help="the longest time to wait for the result (default: 120 plus wait_ms, a day "
        "for what takes long)",
    )


def run(args: Namespace) -> int:
    """Call the method."""
    params = _parameters(sys.stdin.read() if args.params == "-" else args.params)
    known = METHODS.get(args.method)
    _, changes, long = known or ("", False, False)
    if changes and isinstance(params, dict):
        params = {"idempotency_key": new_key(), **params}
    # A call that may change something needs a key to be sent again, so that it is applied once.
    again = (known and not changes) or (
        isinstance(params, dict) and params.get("idempotency_key") is not None
    )
    reply_s = args.timeout or mutation_timeout(long=long, wait_ms=_wait_ms(params))
    with Fleet() as client:
        console.print_json(client.call_raw(args.method, params, reply_s=reply_s, again=again))
    return 0


def _wait_ms(params: Any) -> int:
    """Return how long the call makes the daemon wait; 0 for values that the daemon refuses."""
    wait_ms = params.get("wait_ms") if isinstance(params, dict) else None
    return wait_ms if isinstance(wait_ms, int) and 0 < wait_ms <= LONGEST_S * 1_000 else 0


def _parameters(text: str) -> Any:
    try:
        params = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"argument JSON: not valid JSON: {error}") from error
    if not isinstance(params, dict | list):
        raise UsageError(f"argument JSON: expected an object or an array; got {text!r}")
    return params
