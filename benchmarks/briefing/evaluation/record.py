"""Record what an older revision answered, so that nobody needs it to compare with it.

``python -m benchmarks.briefing.evaluation.record DIRECTORY`` plays all sessions with the fleetd in
a directory, a worktree of dbba02c, and writes its briefings to ``briefings/dbba02c``:

    git worktree add ../past dbba02c
    .venv/bin/python -m benchmarks.briefing.evaluation.record ../past
    git worktree remove ../past
"""

import argparse
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import trio

from . import play
from .session import BUDGETS, HERE, names, session

REVISION = "dbba02c"
# A busy machine must not turn a slow Git into a shorter briefing.
GIT_S = 30
RECORDED = HERE / "briefings" / REVISION


def recorded(name: str) -> dict[int, str]:
    """Return the recorded briefings of a session, by their budgets."""
    found: dict[str, str] = json.loads((RECORDED / f"{name}.json").read_text("utf-8"))
    return {int(budget): text for budget, text in found.items()}


def main() -> int:
    """Play and write."""
    parser = argparse.ArgumentParser(description=__doc__, prog=f"python -m {__spec__.name}")
    parser.add_argument("directory", type=Path, help=f"a worktree of {REVISION}")
    parser.add_argument("--only", action="append", default=[], help="the session of this name")
    chosen = parser.parse_args()
    # fleetd is not imported yet, so the one in the directory is found first.
    sys.path.insert(0, str(chosen.directory.resolve()))
    trio.run(_record, chosen.only or names())
    return 0


async def _record(wanted: list[str]) -> None:
    RECORDED.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        briefings = {
            str(budget): await play.briefing(session(name), budget, _opened) for budget in BUDGETS
        }
        text = json.dumps(briefings, ensure_ascii=False, indent=1)
        (RECORDED / f"{name}.json").write_text(text + "\n", "utf-8")


class _Door:
    """The engine of that revision, whose modules and methods have different names."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._caller = import_module("fleetd.domain.context").Caller(kind="client", uid=os.getuid())
        self._requests: dict[str, Any] = import_module("fleetd.wire.methods").METHODS
        self.methods = frozenset(self._requests)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        request = msgspec.convert(params, self._requests[method])
        found: dict[str, Any] = msgspec.to_builtins(
            await self._engine.perform(request, self._caller)
        )
        return found


@asynccontextmanager
async def _opened(
    root: Path, clock: play.Clock, new_id: Callable[[str], str], budget: int
) -> AsyncIterator[play.Door]:
    config_of = import_module("fleetd.config")
    places = config_of.Paths(
        database=str(root / "squawk.db"),
        checkpoints=str(root / "checkpoints"),
        socket=str(root / "s"),
    )
    config = config_of.Config()
    prompt = msgspec.structs.replace(config.prompt, max_chars=budget)
    config = msgspec.structs.replace(config, paths=places, prompt=prompt)
    git: Any = import_module("fleetd.git")
    git.SECONDS = GIT_S
    uptime = import_module("fleetd.clocks").Uptime
    async with import_module("fleetd.service").open_engine(
        config_of.Loaded(config, {}, root / "config.toml", root / "spool"),
        clock=clock,
        uptime=lambda: uptime(clock.awake_ms, "boot"),
        new_id=new_id,
        inline=True,
    ) as engine:
        yield _Door(engine)


if __name__ == "__main__":
    sys.exit(main())
