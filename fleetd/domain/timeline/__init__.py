"""Timeline: what agents did in a span of time, and the fleet as it was at a moment."""
