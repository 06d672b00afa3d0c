"""What agents report of their sorties, one by one; a plan speaks in ``sessions.plans``.

Must not change sorties itself: that is ``sortie_work``. Here the agent's run gets its snapshot.
"""

from collections.abc import Callable
from typing import Any

from ...protocol.records import Sortie
from ...protocol.requests.sortie import (
    SortieBlock,
    SortieComplete,
    SortieFail,
    SortieProgress,
    SortieStart,
    SortieUnblock,
)
from ..core.context import Context
from ..core.ids import find
from ..core.registry import method
from ..core.tx import Tx
from ..snapshots import triggers
from . import sortie_work


@method(SortieStart)
def start(tx: Tx, ctx: Context, request: SortieStart) -> Sortie:
    """Begin a sortie, or go on with one's own."""
    return _follow(tx, ctx, request, sortie_work.start)


@method(SortieProgress)
def progress(tx: Tx, ctx: Context, request: SortieProgress) -> Sortie:
    """Report progress; the first report begins a sortie."""
    return _follow(tx, ctx, request, sortie_work.progress)


@method(SortieBlock)
def block(tx: Tx, ctx: Context, request: SortieBlock) -> Sortie:
    """Note that a sortie cannot go on."""
    return _follow(tx, ctx, request, sortie_work.block)


@method(SortieUnblock)
def unblock(tx: Tx, ctx: Context, request: SortieUnblock) -> Sortie:
    """Let a blocked sortie go on from where it was."""
    return _follow(tx, ctx, request, sortie_work.unblock)


@method(SortieComplete)
def complete(tx: Tx, ctx: Context, request: SortieComplete) -> Sortie:
    """Complete a sortie."""
    return _follow(tx, ctx, request, sortie_work.complete)


@method(SortieFail)
def fail(tx: Tx, ctx: Context, request: SortieFail) -> Sortie:
    """Give a sortie up."""
    return _follow(tx, ctx, request, sortie_work.fail)


def _follow(
    tx: Tx,
    ctx: Context,
    request: sortie_work.Work,
    rule: Callable[[Tx, Context, Any], Sortie],
) -> Sortie:
    """Do what is reported, and snapshot the run of whoever the sortie is with."""
    row = find(tx, "sortie", request.sortie_id)
    agent_id = request.agent_id or row["assigned_to"]
    before = triggers.standing(tx, agent_id, [row["id"]]) if agent_id else {}
    sortie = rule(tx, ctx, request)
    if agent_id:
        triggers.steps_moved(tx, ctx, agent_id, before)
    return sortie
