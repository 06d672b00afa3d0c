"""What every rule stands on: transaction, registry, context, ids, event log, idempotency."""
