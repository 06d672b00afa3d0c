import unittest

from durations.parse import minutes

WANTED = {
    "90": 90,
    "90 min": 90,
    "2 h": 120,
    "1 h 30 min": 90,
    "1.15 h": 75,
    "0730-0815": 45,
    "2x20 min": 40,
}


class MinutesTest(unittest.TestCase):
    def test_old_and_new_forms(self):
        self.assertEqual({text: minutes(text) for text in WANTED}, WANTED)

    def test_anything_else_is_an_error(self):
        with self.assertRaises(ValueError):
            minutes("soon")
