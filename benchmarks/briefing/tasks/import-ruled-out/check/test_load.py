import unittest

from importer.load import load

RECORDS = [(number, number * 7 % 101) for number in range(1, 5001)]


class Logger:
    """Behaves as the probes found."""

    def read_all(self):
        return RECORDS[:4096]

    def stream(self):
        for place, record in enumerate(RECORDS):
            if place % 1000 > 2 or place < 3:
                yield record

    def page(self, number):
        begin = (max(number, 1) - 1) * 100
        return RECORDS[begin : begin + 100]


class LoadTest(unittest.TestCase):
    def test_all_records_are_there_once_and_in_order(self):
        self.assertEqual(list(load(Logger())), RECORDS)
