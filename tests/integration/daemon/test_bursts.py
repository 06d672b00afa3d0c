"""Hooks connect once per call: many at once are all served, and by the daemon, not by the spool."""

from typing import Any

from benchmarks.burst import HOOKS, at_once, hook_lines


def test_two_hundred_hooks_at_once_are_served_and_recorded(fleet: Any) -> None:
    client = fleet.spawn().client_when_ready()

    # A connection that is refused would be an error here, and so would any other answer.
    replies = at_once(fleet.socket, hook_lines(1))
    assert len(replies) == HOOKS
    at_once(fleet.socket, hook_lines(1))  # the same again: a repeated delivery changes nothing

    status = client.call("hook.status")
    assert sum(each["deliveries"] for each in status["harnesses"]) == HOOKS
    assert status["spool"]["files"] == 0
