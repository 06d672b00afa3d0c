"""What people see: text, tables, pages and times for a terminal; must not talk to the daemon."""
