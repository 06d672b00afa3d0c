"""What it costs that several daemons share a store: beside a store of one's own, and by number."""
