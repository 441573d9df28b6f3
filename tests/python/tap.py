# SPDX-License-Identifier: Apache-2.0
"""Runs the test cases of a module and prints TAP."""
import sys
import traceback
import unittest


class _Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.count = 0

    def line(self, test, good, note="", text=""):
        self.count += 1
        # shortDescription() has the first line alone.
        doc = getattr(test, getattr(test, "_testMethodName", ""), test).__doc__
        what = " ".join(doc.split()) if doc else str(test)
        print(f"{'ok' if good else 'not ok'} {self.count} - {what}{note}")
        for line in text.splitlines():
            print("# " + line)
        sys.stdout.flush()

    def addSuccess(self, test):
        self.line(test, True)

    def addSkip(self, test, reason):
        self.line(test, True, " # SKIP " + reason)

    def addError(self, test, err):
        super().addError(test, err)
        self.line(test, False, text=self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line(test, False, text=self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.line(test, False, text=f"{subtest}\n" + "".join(
                traceback.format_exception(*err)))


def main(module="__main__"):
    result = _Result()
    unittest.defaultTestLoader.loadTestsFromModule(
        sys.modules[module]).run(result)
    print(f"1..{result.count}")
    sys.exit(not result.wasSuccessful())
