"""The live view of ``fleetctl watch``; nothing of it is imported by any other command.

What the daemon told is kept by ``state``, chosen by ``visible``, told as lines by ``rows``, put
into panes by ``layout`` and drawn by ``widgets`` on ``screens``; ``poller`` fetches it.
"""
