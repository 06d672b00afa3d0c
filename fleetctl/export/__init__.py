"""Missions as traces: spans from records and from the log, encoded for OpenTelemetry, and sent.

No other command loads this package.
"""
