"""The base of every rule: transaction, registry, context, ids, event log, idempotency."""
