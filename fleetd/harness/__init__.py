"""One adapter per agent CLI: what its hooks say, in our words, and what it honours in return."""
