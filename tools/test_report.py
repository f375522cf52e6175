#!/usr/bin/env python3
"""tools/test_report.py - count the tests of a CTest run, and say why some failed or did not run.

usage: test_report.py JUNIT_XML OUT_DIR [AGAIN_XML]
Prints `PASSED FAILED SKIPPED`.  Appends to OUT_DIR/failures the names of failed tests with what they said, to OUT_DIR/skips
`name: reason` (also for what a test that ran left out), and to OUT_DIR/times `seconds name`.  With CI=true a skip for another
reason than those in MAY_SKIP (a tool, image or package that was not there) counts as a failure.

AGAIN_XML is a run of the failed tests alone.  What passes there has failed all the same, and is called unsteady.
"""
import os
import re
import sys
import xml.etree.ElementTree as tree

# What a machine or a repository may lack without a fault of whoever prepared it.
MAY_SKIP = re.compile(r"no tag|/dev/kvm|VMX|needs root|no right to|as root only", re.I)
SAID_LINES, SAID_WIDTH = 12, 600


def cases(path):
    return list(tree.parse(path).getroot().iter("testcase")) if path and os.path.exists(path) else []


def output(case):
    return [line.strip() for line in (case.findtext("system-out") or "").splitlines() if line.strip()]


def reason(case):
    lines = output(case)
    said = [line for line in lines if re.match(r"(\[[^]]*\] *)?skip", line, re.I)]
    return (said or lines or ["no reason given"])[-1]


def complaint(case):
    """The checks that failed; the last words of a test that does not name them."""
    lines = output(case)
    bad = [line for line in lines if re.match(r"FAIL|not ok|\[ *FAIL|.*(assert|Sanitizer|Traceback)", line)]
    return "".join("    %s\n" % line[:SAID_WIDTH] for line in (bad[:SAID_LINES] or lines[-SAID_LINES:]))


class Report:
    def __init__(self, folder, again):
        self.folder, self.passed_again = folder, {case.get("name") for case in again if case.get("status") == "run"}
        self.passed = self.failed = self.skipped = 0

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "a") as f:
            f.write(text)

    def skip(self, name, why):
        self.skipped += 1
        self.write("skips", "%s: %s\n" % (name, why))

    def fail(self, text):
        self.failed += 1
        self.write("failures", text)

    def take(self, case):
        name, status = case.get("name"), case.get("status")
        self.write("times", "%6.1f %s\n" % (float(case.get("time") or 0), name))
        if status == "run":
            self.passed += 1
            for line in re.findall(r"^left out: (.*)$", case.findtext("system-out") or "", re.M):
                self.skip(name, line)
        elif status == "notrun" and case.find("skipped") is not None:
            why = reason(case)
            if os.environ.get("CI") == "true" and not MAY_SKIP.search(why):
                self.fail("%s could not run, which CI=true does not accept: %s\n" % (name, why))
            else:
                self.skip(name, why)
        else:
            how = " (unsteady: passed when it ran again, alone)" if name in self.passed_again else ""
            self.fail("%s%s\n%s" % (name, how, complaint(case)))


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__)
        return 2
    report = Report(sys.argv[2], cases(sys.argv[3] if len(sys.argv) == 4 else None))
    for case in cases(sys.argv[1]):
        report.take(case)
    print(report.passed, report.failed, report.skipped)
    return 0


sys.exit(main())
