"""``fleetctl migrate`` where there is no server: what it refuses, what it prints and shows."""

import json
from pathlib import Path

import msgspec
import pytest

from fleetctl.client import Progress
from fleetctl.commands.migrate import _read_replies
from fleetd.protocol.migration import MigrationReply
from tests.support.processes import Daemon, fleetctl


@pytest.fixture(autouse=True)
def _alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a store of one's own, also where other tests have a shared one."""
    monkeypatch.delenv("FLEET_DATABASE_URL", raising=False)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ((), 2, "the setting store is empty"),
        (("--to", "sqlite"), 2, "the setting store is empty"),
        (("--to", "mysql://h/d"), 1, "not a PostgreSQL URL"),
        (("--to", "postgresql://h/d", "--from", "postgresql://i/d"), 2, "--from is allowed only"),
        (("--to", "postgresql:///d?host=/nowhere&password=geheim"), 1, "/nowhere"),
        (("--check", "--undo"), 2, "not allowed with"),
    ],
)
def test_what_makes_no_sense_is_told_with_what_would(
    home: Path, options: tuple[str, ...], status: int, said: str
) -> None:
    (home / "data" / "squawk.db").touch(mode=0o600)
    refused = fleetctl("migrate", *options)
    assert (refused.status, refused.out) == (status, "")
    assert said in refused.err
    assert "geheim" not in refused.err


def test_a_wrong_url_is_named_also_where_no_database_is(home: Path) -> None:
    refused = fleetctl("migrate", "--to", "postgres//db.example.org/fleet")
    assert (refused.status, refused.out) == (1, "")
    assert "it does not begin with postgresql://" in refused.err


def test_while_a_daemon_runs_nothing_is_moved(daemon: Daemon) -> None:
    refused = fleetctl("migrate", "--to", "postgresql://fleet@db.example.org/fleet")
    assert refused.status == 1
    assert "fleetctl daemon stop" in refused.err


def test_the_script_for_roles_is_printed_as_it_is(home: Path) -> None:
    script = fleetctl("migrate", "--roles")
    assert (script.status, script.err) == (0, "")
    for words in ("CREATE ROLE %I LOGIN", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"):
        assert words in script.out
    assert "TRUNCATE" not in script.out


def test_migrate_roles_with_json_prints_one_json_document(home: Path) -> None:
    script, document = fleetctl("migrate", "--roles"), fleetctl("migrate", "--roles", "--json")
    assert (document.status, document.err) == (0, "")
    assert json.loads(document.out) == {"sql": script.out}


def test_how_far_it_is_is_drawn_and_the_last_word_counts() -> None:
    said = [
        MigrationReply(progress=("events", 500, 900)),
        MigrationReply(progress=("locks", 1, 2)),
        MigrationReply(done="Ready."),
    ]
    drawn: list[Progress] = []
    last = _read_replies(iter(map(msgspec.json.encode, said)), drawn.append)
    assert drawn == [Progress("events", 500, 900), Progress("locks", 1, 2)]
    assert last is not None
    assert last.done == "Ready."
    assert _read_replies(iter([]), None) is None
