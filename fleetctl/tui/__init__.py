"""The live view of ``fleetctl watch``; nothing of it is imported by any other command.

What the daemon told is kept by ``picture``, seen by ``fleet``, told as lines by ``rows``,
``banner`` and ``texts``, placed by ``places``: all of that is pure and knows no screen. ``feeding``
fetches it in threads. ``app``, ``board``, ``checkpoints``, ``page`` and ``painted`` are screens,
and the only ones that import textual.
"""
