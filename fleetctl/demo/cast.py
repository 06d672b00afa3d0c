"""Who plays in the demo, and the letters they know each other by; imports nothing."""

DISPATCH = "dispatch-1"
FIRST = "specialist-1"
SECOND = "specialist-2"
SUCCESSOR = "specialist-3"

ORDERS = "Four modules are yours: one sortie, one commit each"
GO_AHEAD = "words.py and sentences.py are there"
QUESTION = "Does a silent e count as a syllable?"
RULING = "A silent e at the end of a word does not count: make has one syllable."
WAITING = "I wait for readability.py"
