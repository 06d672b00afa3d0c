"""``fleetctl metrics``: the daemon's metrics, for Prometheus."""

import os
from contextlib import suppress
from pathlib import Path

from fleetd.protocol.errors import Storage

from ..args import Namespace, Subparsers, command
from ..client import call
from ..client.models import SystemMetrics
from ..output import console

EXAMPLES = """\
  fleetctl metrics
  fleetctl metrics --output /var/lib/node_exporter/fleetd.prom"""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "metrics",
        run,
        "Print the metrics of the daemon in the text format of Prometheus.",
        EXAMPLES,
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="replace this file by one with the metrics, for the textfile collector of "
        "node_exporter. The file gets the permissions of your umask",
    )


def run(args: Namespace) -> int:
    """Read the metrics from the daemon, and print or write them."""
    metrics = call(SystemMetrics())
    if args.output is not None:
        _write(args.output, metrics.text)
        return console.result(args, {"path": str(args.output.absolute())})
    return console.show(args, metrics, lambda _: print(metrics.text, end=""))


def _write(path: Path, text: str) -> None:
    """Replace a file by renaming, so that a collector never reads half of one."""
    # A collector reads *.prom; the temporary file must not match.
    coming = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        coming.write_text(text, encoding="utf-8")
        coming.replace(path)
    except OSError as error:
        with suppress(OSError):
            coming.unlink(missing_ok=True)
        raise Storage(
            f"{path} cannot be written: {error.strerror}.", hint="Name a file you may write."
        ) from error
