"""The guided tour behind ``fleetctl demo``: a fleet loses an agent and gets its work back.

Real processes, a real daemon and a real repository, all in a temporary directory.
"""

from argparse import Namespace


def run(args: Namespace) -> int:
    """Play the demo; return 0 when everything came out as it must, else 1."""
    # Not earlier: the agents' programs are modules of this package and need none of it.
    from . import tour

    return tour.run(args)
