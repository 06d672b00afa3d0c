"""The entry point of ``fleetctl`` and ``fleet``: a quick start.

Nearly all of a command's time is imports, and agents run many commands.
"""

import gc
import os
import sys


def main(argv: list[str] | None = None) -> None:
    """Run one command and end the process with its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()
    if arguments[:1] == ["hook"] and arguments[1:] not in (["--help"], ["-h"]):
        # Nothing may come before it that could fail aloud: an agent waits for this.
        from . import hook_client

        hook_client.main(arguments[1:])
    # What is imported lives as long as the process: there is no garbage to look for in it.
    gc.disable()
    from . import cli

    gc.freeze()
    gc.enable()
    _end(cli.main(argv))


def _end(status: int) -> None:
    """End at once: to take the interpreter apart takes longer than all that a command imports.

    Nothing is left to be done by then. Commands close their files, wait for their threads and
    children, and register nothing for the end.
    """
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib is not imported for a hook
            stream.flush()
        except (OSError, ValueError):  # nobody reads it, as cli.main has said
            pass
    os._exit(status)


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


if __name__ == "__main__":
    main()
