"""Durations as people say them. Commands load this at start, and need no datetime for it."""


def duration(ms: int) -> str:
    """Render a duration in ms the way people say it: ``2h 30m``, ``4m 10s``, ``12s``."""
    seconds = max(ms, 0) // 1000
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m"
    if minutes:
        return f"{minutes}m {seconds}s"
    return f"{seconds}s"
