import unittest
from datetime import date

from hours.entries import Entry, read


class ReadTest(unittest.TestCase):
    def test_a_line_is_an_entry(self):
        self.assertEqual(read("2026-03-02,atlas,95"), [Entry(date(2026, 3, 2), "atlas", 95)])


if __name__ == "__main__":
    unittest.main()
