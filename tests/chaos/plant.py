"""Planting of a defect: the replaced attribute must exist, or the defect would have no effect."""

from typing import Any


def plant(owner: Any, name: str, value: Any) -> Any:
    """Replace an attribute of a module or class, and return its old value.

    Raises AttributeError when there is no such attribute: then the daemon does not start, which
    does not count as a broken promise.
    """
    before = getattr(owner, name)
    setattr(owner, name, value)
    return before
