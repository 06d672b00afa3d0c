"""Runs tests over a PostgreSQL server that it starts, and stops whatever happens to them.

``python -m tests.postgres_suite [what pytest takes]``; without tests named, those that CI runs.
"""

import os
import signal
import subprocess
import sys
from typing import Any

from tests.support.postgres_programs import NotInstalled, binaries, install
from tests.support.postgres_server import SUPERUSER, LocalPostgres

_RULES = {
    "agents": "agent_loss mail_rules",
    "artifacts": "files_of_machines reconciling",
    "attention": "needs",
    "checkpoints": "checkpoint_rules checkpoint_service checkpoint_storage contract edge_cases",
    "cluster": "membership projects_of_machines",
    "erasure": "erasure_batches",
    "events": "event_pages",
    "liveness": "detection",
    "locks": "lock_rules lock_waits",
    "missions": "list_pages selection",
    "notes": "facts notes notes_that_last",
    "recovery": "context_injection prompt recovery_edges recovery_rules restoration"
    " restoration_scenarios",
    "retention": "pruning pruning_batches",
    "stats": "compactions",
    "system": "counters idempotency migration repeating_and_naming",
}
_PROTOCOL = "api leader_follower parameters snapshot_parameters subscriptions"
# What CI has time for: what needs a server, then rules and what the socket tells of a store. Of the
# rules those that ask most of a store; ARGS="tests/rules tests/protocol" runs all.
TESTS = (
    *("tests/postgres", "tests/unit/sessions"),
    *(f"tests/protocol/test_{name}.py" for name in _PROTOCOL.split()),
    *(
        f"tests/rules/{noun}/test_{name}.py"
        for noun, names in _RULES.items()
        for name in names.split()
    ),
)


def main(argv: list[str]) -> int:
    """Run pytest with ``argv`` and return its exit status."""
    try:
        _provide()
    except NotInstalled as reason:
        print(reason, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _stop)
    named = any(word.startswith("tests") for word in argv)
    with LocalPostgres() as server:
        address = server.url(server.new_database(), user=SUPERUSER)
        command = [sys.executable, "-m", "pytest", *argv, *(() if named else TESTS)]
        return _run(command, os.environ | {"FLEET_TEST_STORE": address})


def _provide() -> None:
    try:
        binaries()
    except NotInstalled:
        install()
        binaries()


def _run(command: list[str], env: dict[str, str]) -> int:
    process = subprocess.Popen(command, env=env)
    try:
        return process.wait()
    except BaseException:
        # Ctrl-C reached pytest too, which clears up after its tests; a signal to us alone did not.
        process.send_signal(signal.SIGINT)
        process.wait(60)
        raise
    finally:
        process.kill()


def _stop(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
