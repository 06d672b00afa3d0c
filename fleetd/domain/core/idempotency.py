"""Idempotency keys: a repeated request is answered with its first result."""

import hashlib
from typing import Any

import msgspec

from ...protocol.errors import InvalidParams
from ...protocol.request import BY_NAME_ONLY, Mutation, result_type
from .assigned import encode_json
from .context import Context
from .registry import frees_space
from .tx import Tx

KEPT_MS = 86_400_000
_canonical = msgspec.json.Encoder(order="sorted").encode


def _digest(request: Mutation[Any]) -> str:
    about = {name: None for name in BY_NAME_ONLY if name in request.__struct_fields__}
    return hashlib.sha256(_canonical(msgspec.structs.replace(request, **about))).hexdigest()


def recall(tx: Tx, ctx: Context, request: Mutation[Any]) -> Any:
    """Return the first result under the request's key, or None when there is none.

    Raises InvalidParams when the key was already used with other parameters.
    """
    row = tx.one(
        "SELECT * FROM idempotency_keys WHERE method = :method AND key = :key"
        " AND created_at > :since",
        method=request.method,
        key=request.idempotency_key,
        since=ctx.at(-KEPT_MS),
    )
    if row is None:
        return None
    if row["params_digest"] != _digest(request):
        raise InvalidParams(
            f"idempotency_key {request.idempotency_key} was already used with other parameters.",
            hint="Use a new key for each new request.",
            field="idempotency_key",
        )
    return msgspec.json.decode(row["result_json"], type=result_type(type(request)))


def remember(tx: Tx, ctx: Context, request: Mutation[Any], result: Any) -> None:
    """Keep the first result under the request's key for 24 hours; errors are never kept."""
    tx.run(
        "INSERT INTO idempotency_keys (method, key, params_digest, result_json, created_at)"
        " VALUES (:method, :key, :digest, :result, :now)"
        " ON CONFLICT (method, key) DO UPDATE SET params_digest = excluded.params_digest,"
        " result_json = excluded.result_json, created_at = excluded.created_at",
        method=request.method,
        key=request.idempotency_key,
        digest=_digest(request),
        result=encode_json(result).decode(),
        now=ctx.now,
    )


def forget_answer(tx: Tx, ctx: Context, request: Mutation[Any]) -> None:
    """Delete the result under the request's key: what it promised did not happen."""
    tx.run(
        "DELETE FROM idempotency_keys WHERE method = :method AND key = :key",
        method=request.method,
        key=request.idempotency_key,
    )


@frees_space
def drop_expired(tx: Tx, ctx: Context) -> bool:
    """Drop some results of requests that nobody will repeat; return whether there were any."""
    dropped = tx.all(
        "DELETE FROM idempotency_keys WHERE (method, key) IN (SELECT method, key"
        " FROM idempotency_keys WHERE created_at < :old ORDER BY created_at LIMIT :limit)"
        " RETURNING method",
        old=ctx.at(-KEPT_MS),
        limit=ctx.batches.rows,
    )
    return bool(dropped)
