"""The entry point of ``fleetctl`` and ``fleet``; holds nothing but a quick start.

Nearly all of a command's time is imports, and agents run many commands.
"""

import gc
import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()
    if arguments[:1] == ["hook"] and arguments[1:] not in (["--help"], ["-h"]):
        # Nothing may come before it that could fail aloud: an agent waits for this.
        from . import hook

        hook.main(arguments[1:])
    # What is imported lives as long as the process: there is no garbage to look for in it.
    gc.disable()
    _import_msgspec()
    from . import cli

    gc.freeze()
    gc.enable()
    return cli.main(argv)


def _open_closed_streams() -> None:
    """Let nothing be read from, or written to, what the caller closed.

    Else the next file that is opened, such as the socket, would have the stream's number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, a fifth of the start-up.

    It takes three names from there when it can, which ``typing`` has as well since Python 3.11.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec as msgspec
    finally:
        del sys.modules["typing_extensions"]


if __name__ == "__main__":
    sys.exit(main())
