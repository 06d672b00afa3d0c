"""Liveness: inactivity, open tool calls and the agents of a process."""
