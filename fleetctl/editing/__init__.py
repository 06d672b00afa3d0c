"""Changes other people's files and nothing in them that was not asked for; must not know hooks."""
