"""Budgets: how much a mission should take at most. Exceeding a budget stops nothing."""

from ...protocol.errors import InvalidParams
from ...protocol.requests.usage import (
    BudgetList,
    BudgetPage,
    MissionBudget,
    ModelUsage,
    UsageBudget,
)
from ...protocol.types import OPEN_MISSION
from ..core.context import Context
from ..core.ids import find
from ..core.registry import method
from ..core.sql import in_sql
from ..core.tx import Row, Tx
from .report import Filter, Tally, cursor_of, page


@method(UsageBudget)
def set_budget(tx: Tx, ctx: Context, request: UsageBudget) -> MissionBudget:
    """Set the budget of a mission, or remove it."""
    row = find(tx, "mission", request.mission_id)
    if request.tokens is not None and request.usd_cents is not None:
        raise InvalidParams(
            "A budget is in tokens or in dollars, not in both.",
            hint="Give one of tokens and usd_cents.",
            field="usd_cents",
        )
    tx.run("DELETE FROM budgets WHERE mission_id = :id", id=row["id"])
    if request.tokens is not None or request.usd_cents is not None:
        tx.insert(
            "budgets",
            {
                "mission_id": row["id"],
                "tokens": request.tokens,
                "usd_cents": request.usd_cents,
                "created_at": ctx.now,
            },
        )
    return budget_of(tx, ctx, row["id"])


def budget_of(tx: Tx, ctx: Context, mission_id: str) -> MissionBudget:
    """Return the budget of a mission, and its usage."""
    row = tx.one(
        "SELECT m.id, m.title, b.tokens, b.usd_cents FROM missions m"
        " LEFT JOIN budgets b ON b.mission_id = m.id WHERE m.id = :id",
        id=mission_id,
    )
    if row is None:
        raise AssertionError(f"a mission is gone: {mission_id}")
    return _budget(tx, ctx, row)


@method(BudgetList)
def list_budgets(tx: Tx, ctx: Context, request: BudgetList) -> BudgetPage:
    """Return the budgets of open missions."""
    rows = tx.all(
        "SELECT m.id, m.title, b.tokens, b.usd_cents FROM budgets b"
        f" JOIN missions m ON m.id = b.mission_id WHERE m.status IN {in_sql(OPEN_MISSION)}"
        " ORDER BY m.id"
    )
    return BudgetPage(budgets=[_budget(tx, ctx, row) for row in rows])


def _budget(tx: Tx, ctx: Context, row: Row) -> MissionBudget:
    return MissionBudget(
        mission_id=row["id"],
        title=row["title"],
        tokens=row["tokens"],
        usd_cents=row["usd_cents"],
        models=_taken(tx, ctx, row["id"]),
    )


def _taken(tx: Tx, ctx: Context, mission_id: str) -> list[ModelUsage]:
    tally, wanted, after = Tally("mission"), Filter(mission_id=mission_id), ("", "")
    while rows := page(tx, ctx, wanted, after):
        for each in rows:
            tally.add(each)
        after = cursor_of(rows[-1])
    return tally.models()
