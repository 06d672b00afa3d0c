"""Planting of a defect: what is exchanged must be there, or the defect would be none."""

from typing import Any


def plant(owner: Any, name: str, value: Any) -> Any:
    """Exchange an attribute of a module or class, and return what it was.

    Raises AttributeError where there is none of that name: then the daemon does not start, which
    is not taken for a promise that was broken.
    """
    before = getattr(owner, name)
    setattr(owner, name, value)
    return before
