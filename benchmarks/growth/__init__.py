"""How time and memory grow: with missions, with events, with sorties, with subscribers."""
