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
        # Nothing before it may print an error: an agent waits for the hook.
        from . import hook_client

        hook_client.main(arguments[1:])
    # Imported objects live as long as the process, so the collector would find no garbage in them.
    gc.disable()
    from . import cli

    gc.freeze()
    gc.enable()
    _end(cli.main(argv))


def _end(status: int) -> None:
    """End immediately: tearing down the interpreter takes longer than all imports of a command.

    By then there is nothing left to do. Commands close their files, wait for their threads and
    children, and register no exit handlers.
    """
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib is not imported for a hook
            stream.flush()
        except (OSError, ValueError):  # nobody reads it, and cli.main has reported it
            pass
    os._exit(status)


def _open_closed_streams() -> None:
    """Replace the streams that the caller closed by the null device.

    Otherwise the next file to be opened, such as the socket, would get the stream's number.
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
