"""The client's table of methods and records, from the Structs of the protocol."""

import importlib
import pkgutil
import textwrap

import msgspec

import fleetd.protocol
from fleetd.protocol.events import Payload
from fleetd.protocol.methods import METHODS
from fleetd.protocol.request import Request

PATH = "fleetctl/client/methods.py"
HEAD = '''\
"""Every method and record of the wire by name; written by ``make generate``, do not edit."""

# The name of a method's request, whether it may change something, whether it may take long.
METHODS = {
'''


def files() -> dict[str, str]:
    """Return the module by its path."""
    methods = "".join(
        f'    "{name}": ("{each.__name__}", {each.changes}, {each.long}),\n'
        for name, each in METHODS.items()
    )
    records = textwrap.fill(" ".join(sorted(_records())), 100)
    end = f'_RECORD_NAMES = """\n{records}\n"""\nRECORDS = frozenset(_RECORD_NAMES.split())\n'
    return {PATH: f"{HEAD}{methods}}}\n{end}"}


def _records() -> set[str]:
    """Return the names that commands use besides requests, without the payloads of the log."""
    found = {"Mutation", "Query", "Request"}
    for module in pkgutil.walk_packages(fleetd.protocol.__path__, "fleetd.protocol."):
        for thing in vars(importlib.import_module(module.name)).values():
            if isinstance(thing, type) and issubclass(thing, msgspec.Struct):
                found |= set() if issubclass(thing, Request | Payload) else {thing.__name__}
    return found - {"Struct"} - {request.__name__ for request in METHODS.values()}
