"""What the server's errors come to, for the request that met them and for its neighbours."""

from pathlib import Path

import pytest
import trio

from fleetd.protocol.errors import (
    Corrupt,
    FleetError,
    Incompatible,
    InvalidParams,
    Storage,
    Unavailable,
)
from fleetd.store.postgres import batch
from tests.postgres.shared_stores import Opened, running
from tests.support.postgres_server import LocalPostgres, run_sql

# Fails as told, for events of one type, so many times.
FAILING = """
    CREATE SEQUENCE times;
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('times') <= {times} THEN
            RAISE EXCEPTION 'so it was told' USING ERRCODE = '{code}';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER fail BEFORE INSERT ON events
        FOR EACH ROW WHEN (NEW.type = 'bad') EXECUTE FUNCTION fail();
"""
ALWAYS = 1_000_000


async def met(opened: Opened) -> FleetError:
    """Return what a request meets among others, which notice nothing."""
    errors: list[FleetError] = []

    async def fails() -> None:
        with pytest.raises(FleetError) as raised:
            await opened.event("bad")
        errors.append(raised.value)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(opened.event, f"good{number}")
        nursery.start_soon(fails)
    return errors[0]


@pytest.mark.parametrize(
    ("code", "kind", "words", "retry"),
    [
        ("53100", Storage, "The server's disk is full", False),
        ("53200", Unavailable, "no memory left", True),
        ("57014", Unavailable, "took too long", True),
        ("55P03", Unavailable, "holds a lock on the store", True),
        ("42501", Storage, "refuses: so it was told", False),
        ("42P01", Incompatible, "a different schema", False),
        ("XX001", Corrupt, "damaged", False),
        ("54000", InvalidParams, "has at most 2,700 bytes", False),
        ("22003", InvalidParams, "cannot hold a value of this request", False),
    ],
)
async def test_one_request_meets_it_alone(
    code: str,
    kind: type[FleetError],
    words: str,
    retry: bool,
    postgres: LocalPostgres,
    database: str,
    tmp_path: Path,
) -> None:
    url = postgres.url(database)
    async with running(url, tmp_path) as opened:
        run_sql(url, FAILING.format(code=code, times=ALWAYS))
        error = await met(opened)
        assert type(error) is kind
        assert words in error.message
        assert error.values.get("retry", False) is retry
        assert sorted(await opened.kinds()) == sorted(f"good{n}" for n in range(10))
        assert opened.store.availability.away is None


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_who_was_in_the_way_of_others_runs_again(
    code: str, postgres: LocalPostgres, database: str, tmp_path: Path
) -> None:
    url = postgres.url(database)
    async with running(url, tmp_path) as opened:
        run_sql(url, FAILING.format(code=code, times=2))
        async with trio.open_nursery() as nursery:
            for kind in ("good", "bad", "better"):
                nursery.start_soon(opened.event, kind)
        assert sorted(await opened.kinds()) == ["bad", "better", "good"]
        run_sql(url, "DROP TRIGGER fail ON events; DROP FUNCTION fail; DROP SEQUENCE times")
        run_sql(url, FAILING.format(code=code, times=ALWAYS))
        with pytest.raises(Unavailable, match="conflicted repeatedly"):
            await opened.event("bad")
        assert opened.store.availability.away is None


async def test_who_has_much_to_do_lets_others_have_their_turn(
    postgres: LocalPostgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_TURN_S", 0.0)
    url = postgres.url(database)
    async with running(url, tmp_path) as opened:
        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(opened.event, str(number))
        rows = run_sql(url, "SELECT batch FROM writers")
        assert rows == [{"batch": 40}]
        assert len(set(await opened.kinds())) == 40
