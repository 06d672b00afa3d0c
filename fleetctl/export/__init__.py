"""Missions as traces: spans from records and from the log, encoded for OpenTelemetry, and sent.

Nothing here is loaded by another command.
"""
