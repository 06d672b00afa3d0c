"""What damage took from the end of the log is missed at the next start, and never for nothing."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet, opened


async def filled(tmp_path: Path) -> Path:
    """Return a store as a kill leaves it, all of its missions in the WAL."""
    (tmp_path / "a").mkdir()
    async with opened(tmp_path / "a") as fleet:
        for _ in range(3):
            await fleet.mission(1)
        shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    return tmp_path / "b"


async def titles(fleet: Fleet) -> int:
    return len(fleet.sql("SELECT id FROM missions"))


def cut_to_nothing(wal: Path) -> None:
    wal.write_bytes(b"")


def cut_off_the_end(wal: Path) -> None:
    wal.write_bytes(wal.read_bytes()[:-4_120])


def flip_a_bit(wal: Path) -> None:
    data = bytearray(wal.read_bytes())
    data[len(data) - 100] ^= 4
    wal.write_bytes(data)


@pytest.mark.parametrize("hurt", [cut_to_nothing, cut_off_the_end, flip_a_bit, Path.unlink])
async def test_what_a_damaged_wal_has_lost_is_told(tmp_path: Path, hurt: Any, caplog: Any) -> None:
    root = await filled(tmp_path)
    hurt(root / "data" / "squawk.db-wal")
    async with opened(root) as fleet:
        lost = fleet.engine.store.lost
        assert lost is not None
        assert "its log ends at" in lost.why
        (told,) = [event for event in await fleet.events() if event.type == "store_restored"]
        assert told.data["source"] == "damage"
        assert told.seq > lost.reached > lost.end
    assert "fleetd serves the remaining events under a new epoch" in caplog.text
    kept = list((root / "data").glob("squawk.db-wal.damaged-*"))
    assert len(kept) == (hurt not in (Path.unlink, cut_to_nothing))
    async with opened(root) as fleet:
        assert fleet.engine.store.lost is None


async def test_a_kill_is_no_damage(tmp_path: Path) -> None:
    root = await filled(tmp_path)
    async with opened(root) as fleet:
        assert fleet.engine.store.lost is None
        assert await titles(fleet) == 3
    async with opened(root) as fleet:
        assert fleet.engine.store.lost is None


@pytest.mark.parametrize("data", [b"", b"short", bytes(12), b"\xff" * 12])
async def test_a_mark_that_is_damaged_says_nothing(tmp_path: Path, data: bytes) -> None:
    root = await filled(tmp_path)
    (root / "data" / "squawk.db-mark").write_bytes(data)
    async with opened(root) as fleet:
        assert fleet.engine.store.lost is None
        assert await titles(fleet) == 3
        await fleet.mission(1)
    async with opened(root) as fleet:
        assert fleet.engine.store.lost is None


async def test_a_lost_end_gives_out_no_token_twice(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    async with opened(tmp_path / "a") as fleet:
        mission = await fleet.mission(1)
        first = await fleet.lock(mission, "a.py", "one")
        shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    cut_off_the_end(tmp_path / "b" / "data" / "squawk.db-wal")
    async with opened(tmp_path / "b") as fleet:
        again = await fleet.lock(await fleet.mission(1), "b.py", "two")
        assert again.fencing_token > first.fencing_token + 1
