"""The ground of every rule: transaction, registry, context, ids, event log, idempotency."""
