import unittest
from datetime import date

from hours.entries import Entry
from hours.export import export

ENTRIES = [
    Entry(date(2026, 3, 31), "atlas", 95),
    Entry(date(2026, 3, 2), "borealis", 60),
    Entry(date(2026, 3, 2), "borealis", 1),
    Entry(date(2026, 4, 1), "cygnus", 16),
]
WANTED = [
    "31.03.2026;atlas;105;168,00",
    "02.03.2026;borealis;60;120,00",
    "02.03.2026;borealis;15;30,00",
    "01.04.2026;cygnus;30;37,00",
]


class ExportTest(unittest.TestCase):
    def test_the_file_is_as_ruled(self):
        self.assertEqual(export(ENTRIES).splitlines(), WANTED)
