"""The entry point of ``fleetctl`` and ``fleet``; holds nothing but the call."""

import sys

from .cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
