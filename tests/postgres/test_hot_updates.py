"""What changes with each event is in no index: the server updates such rows in place (HOT)."""

import json
from pathlib import Path

import trio

from fleetd.protocol.requests.hook import HookDeliver
from tests.support.fleet import SECOND, opened
from tests.support.postgres_server import LocalPostgres, run_sql

# Sessions that begin move between missions, which is in an index: of few hooks that would be much.
ROUNDS = 120
SESSIONS = tuple(name * 8 for name in ("a1", "b2", "c3", "d4"))
TABLES = ("missions", "agents", "sessions", "edits")
COUNTS = """
    SELECT n_tup_upd AS updated, n_tup_hot_upd AS hot FROM pg_stat_user_tables
    WHERE relname = %s AND schemaname = current_schema()
"""
DEADLINE_S = 30


def counts(url: str, table: str) -> tuple[int, int]:
    [row] = run_sql(url, COUNTS, table)
    return row["updated"], row["hot"]


async def test_hooks_update_rows_in_place(
    postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with opened(tmp_path, store=url) as fleet:

        async def hook(number: int, session: str, event: str, **fields: object) -> None:
            told = {"session_id": session, "cwd": str(fleet.project), "hook_event_name": event}
            await fleet.do(HookDeliver(f"hot-{number:08}", "claude", json.dumps(told | fields)))

        for number, session in enumerate(SESSIONS):
            await hook(number, session, "SessionStart", source="startup")
        for number in range(ROUNDS * len(SESSIONS)):
            fleet.clock.pass_by(SECOND)
            # Where agents meet in a file for the first time, a message is sent again: its updates
            # count twice.
            name = f"{number % len(SESSIONS)}-{number % 7}.py"
            file = {"file_path": str(fleet.project / name), "content": "x"}
            await hook(
                1_000 + number,
                SESSIONS[number % len(SESSIONS)],
                "PostToolUse",
                tool_name="Write",
                tool_input=file,
                tool_use_id=f"t-{number}",
            )
    # The counts are those of connections that have ended.
    deadline = trio.current_time() + DEADLINE_S
    for table in TABLES:
        found = counts(url, table)
        while found[0] < ROUNDS and trio.current_time() < deadline:
            await trio.sleep(0.05)
            found = counts(url, table)
        updated, hot = found
        assert updated >= ROUNDS, table
        assert hot >= 0.95 * updated, f"{table}: {hot} of {updated} updates"
