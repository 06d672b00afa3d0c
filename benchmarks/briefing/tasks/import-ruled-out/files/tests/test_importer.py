import unittest

import importer


class ImporterTest(unittest.TestCase):
    def test_the_package_is_there(self):
        self.assertTrue(importer.__name__)
