"""What a client is answered that asks again for a forgetting in whose middle the daemon was ended.

The next start finishes what was begun; then nothing is there any more that the request names.
"""

from typing import Any

from ...protocol.request import Mutation
from ...protocol.requests.mission import Deleted, MissionDelete
from ...protocol.requests.system import Forgotten
from ..core.context import Context
from ..core.idempotency import disown, remember
from ..core.registry import handler
from ..core.tx import Tx
from ..system.startup import Done
from .clauses import Scope


class ForgetDisown(Mutation[Done], frozen=True):
    """Take back the answer to a client's request: what was begun is not finished."""

    asked: Mutation[Any]


def promise(tx: Tx, ctx: Context, asked: Mutation[Any], scope: Scope) -> None:
    """Keep an answer under the request's key in the transaction that begins; a whole one follows.

    It counts only what is known at once.
    """
    if asked.idempotency_key is None:
        return
    if isinstance(asked, MissionDelete):
        remember(tx, ctx, asked, Deleted(deleted=True))
        return
    text = "fleetd was ended meanwhile and has finished it since: only missions and agents were"
    answer = Forgotten(
        dry_run=False,
        missions=len(scope.missions),
        sorties=0,
        agents=len(scope.agents),
        locks=0,
        messages=0,
        events=0,
        checkpoints=0,
        recoveries=0,
        cursors=0,
        shared_missions=len(scope.shared),
        shared=scope.shared,
        warnings=[f"{text} counted."],
    )
    remember(tx, ctx, asked, answer)


@handler
def disown_answer(tx: Tx, ctx: Context, request: ForgetDisown) -> Done:
    """Keep no answer under the key of a request that failed."""
    disown(tx, request.asked)
    return Done(done=True)
