"""What a shell is offered while somebody types; must not change anything."""
