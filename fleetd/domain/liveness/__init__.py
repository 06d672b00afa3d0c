"""Liveness: inactivity, open tool calls and what has come due."""
