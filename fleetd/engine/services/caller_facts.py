"""Who asks: the agent in whose process a client runs, as the kernel says it."""

from ...domain.core.context import Caller, Facts
from ...host import processes


def facts_of(caller: Caller, places: tuple[str, ...] = ()) -> Facts:
    """Return what is known of a caller beside its request; ``places`` are its directory's."""
    pid, started = (caller.pid and processes.agent_behind(caller.pid)) or (None, None)
    return Facts(agent_pid=pid, pid_started=started, places=places)
