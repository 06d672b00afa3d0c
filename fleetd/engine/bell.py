"""The doorbell that wakes those who wait for a commit; must not say what was committed."""

import trio


class Ticket:
    """A place in front of the bell; take it before you look, wait on it after."""

    def __init__(self, event: trio.Event) -> None:
        self._event = event

    async def wait(self) -> None:
        """Return once the bell has rung since the ticket was taken."""
        await self._event.wait()


class Bell:
    """Rings for everybody at once. Whoever takes a ticket before looking misses nothing."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def ticket(self) -> Ticket:
        """Return a ticket for the next ring."""
        return Ticket(self._event)

    def ring(self) -> None:
        """Wake everybody who holds a ticket."""
        self._event.set()
        self._event = trio.Event()
