"""``fleetctl doctor``: everything that can be examined, by the daemon or without it."""

from argparse import Namespace

from fleetd import __version__
from fleetd.protocol.errors import Denied, InvalidParams, Unavailable

from ..args import Subparsers, command
from ..client import Fleet, TooSlow
from ..client.models import Finding, Findings, Hello, SystemDoctor, SystemHello
from ..output import console
from ..output.progress import bar
from ..output.views.findings import show


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    examining = command(
        subparsers,
        "doctor",
        run,
        "Look for damage, copies that differ, loose permissions, leftovers and a full disk; "
        "exit status 1 when something is wrong and stays so.",
        "  fleetctl doctor\n  fleetctl doctor --fix",
    )
    examining.flag("--fix", help="mend what can be mended")


def run(args: Namespace) -> int:
    """Have the daemon examine itself; without one, examine what its start would meet."""
    try:
        with Fleet() as client, bar(args, "Checking") as progress:
            hello = client.call(SystemHello())
            found = client.call(SystemDoctor(fix=args.fix), progress=progress)
    except TooSlow as error:
        # What a start would meet is told by none that goes on.
        silent = Finding(check="daemon", ok=False, detail=f"{error.message} {error.hint}")
        return show(args, Findings(ok=False, findings=[silent, *_service(args)]))
    except (Unavailable, Denied, InvalidParams) as error:
        # Imported here: reading the configuration needs platformdirs and a TOML parser.
        from . import _preflight

        away = Finding(check="daemon", ok=False, detail=error.message)
        return show(
            args, Findings(ok=False, findings=[away, *_service(args), *_preflight.findings()])
        )
    findings = [_daemon(hello), *_service(args), *found.findings]
    return show(args, Findings(ok=all(f.ok or f.fixed for f in findings), findings=findings))


def _service(args: Namespace) -> list[Finding]:
    # Imported here: reading the configuration needs platformdirs and a TOML parser.
    from ..service import status

    found = status.of_this_machine()
    for warning in status.to_warn_of(found):
        if not args.json:
            console.warn(warning)
    return found


def _daemon(hello: Hello) -> Finding:
    detail = f"fleetd {hello.version} runs (pid {hello.pid})"
    same = hello.version == __version__
    if not same:
        detail += f"; fleetctl is of version {__version__}: restart fleetd after an upgrade"
    return Finding(check="daemon", ok=same, detail=detail)
