"""The sign and colour of every status, and bars; pure. No colour says what a sign does not say."""

from .cells import Line

_SIGNS = {
    "waits": ("▲", "warn"),
    "in_progress": ("●", "good"),
    "pending": ("○", "dim"),
    "assigned": ("○", ""),
    "blocked": ("■", "warn"),
    "completed": ("✓", "good"),
    "failed": ("✗", "bad"),
    "cancelled": ("-", "dim"),
    "closed": ("○", "dim"),
    "merged": ("-", "dim"),
    "ended": ("✓", "dim"),
    "active": ("●", "good"),
    "waiting": ("◐", "warn"),
    "idle": ("○", "dim"),
    "lost": ("✗", "bad"),
    "gone": ("-", "dim"),
    "queued": ("◌", "warn"),
    "delivered": ("◑", ""),
    "acked": ("✓", "dim"),
}
_UNKNOWN = ("·", "dim")


def sign_of(status: str) -> str:
    """Return the sign of a status."""
    return _SIGNS.get(status, _UNKNOWN)[0]


def style_of(status: str) -> str:
    """Return the style of a status."""
    return _SIGNS.get(status, _UNKNOWN)[1]


def mark(status: str) -> Line:
    """Return the sign of a status in its style, with room behind it."""
    return [(sign_of(status) + " ", style_of(status))]


def bar(percent: int, columns: int, style: str) -> Line:
    """Return a bar of progress; it can be read without colours too."""
    full = max(0, min(columns, (percent * columns + 50) // 100))
    # Begun shows, and only what is done is full.
    full = max(full, 1) if percent > 0 else full
    full = min(full, columns - 1) if percent < 100 else full
    return [("━" * full, style), ("─" * (columns - full), "dim")]
