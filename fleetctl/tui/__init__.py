"""The live view of ``fleetctl watch``; no other command imports it.

``poller`` fetches data from the daemon, and ``state`` keeps it. ``visible`` selects what to show,
``rows`` formats lines, ``layout`` arranges panes, and ``widgets`` draws them on ``screens``.
"""
