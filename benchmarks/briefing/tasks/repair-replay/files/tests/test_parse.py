import unittest

from durations.parse import minutes


class MinutesTest(unittest.TestCase):
    def test_hours(self):
        self.assertEqual(minutes("2 h"), 120)
