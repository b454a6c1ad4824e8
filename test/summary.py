"""Add up the JUnit files that the test suites wrote; the last line is the verdict.

Usage: summary.py FOLDER SUITE...

A suite that wrote no file, or that ended with an error although no test in its
file failed (a crash, a collection error), counts as one failure.
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def count(file: Path) -> tuple[int, int, int]:
    """Return the numbers of passed, failed and skipped tests in a JUnit file."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(file).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main() -> int:
    folder = Path(sys.argv[1])
    total = [0, 0, 0]
    for suite in sys.argv[2:]:
        status = int((folder / f"{suite}.status").read_text())
        try:
            passed, failed, skipped = count(folder / f"{suite}.xml")
        except (OSError, ElementTree.ParseError):
            passed, failed, skipped = 0, 0, 0
            status = status or 1
        if status and not failed:
            failed = 1
            print(f"{suite}: ended with status {status} and reported no failed test")
        print(f"{suite}: {passed} passed, {failed} failed, {skipped} skipped")
        total = [a + b for a, b in zip(total, (passed, failed, skipped), strict=True)]
    passed, failed, skipped = total
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
