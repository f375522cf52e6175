#!/usr/bin/env python3
"""tools/test_report.py - count the tests of a CTest run, and say why some did not run.

usage: test_report.py JUNIT_XML OUT_DIR
Prints `PASSED FAILED SKIPPED`.  Appends the names of failed tests to OUT_DIR/failures, `name: reason` to OUT_DIR/skips (also for
what a test that ran left out), and `seconds name` to OUT_DIR/times.  With CI=true a skip for another reason than those in
MAY_SKIP (a tool, image or package that was not there) counts as a failure.
"""
import os
import re
import sys
import xml.etree.ElementTree as tree

# What a machine or a repository may lack without a fault of whoever prepared it.
MAY_SKIP = re.compile(r"no tag|/dev/kvm|VMX|needs root|no right to|as root only", re.I)


def reason(case):
    lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines() if line.strip()]
    said = [line for line in lines if re.match(r"(\[[^]]*\] *)?skip", line, re.I)]
    return (said or lines or ["no reason given"])[-1]


def main():
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    passed = failed = skipped = 0
    cases = tree.parse(sys.argv[1]).getroot().iter("testcase") if os.path.exists(sys.argv[1]) else ()
    out = {name: open(os.path.join(sys.argv[2], name), "a") for name in ("failures", "skips", "times")}
    with out["failures"] as failures, out["skips"] as skips, out["times"] as times:
        for case in cases:
            name, status = case.get("name"), case.get("status")
            times.write("%6.1f %s\n" % (float(case.get("time") or 0), name))
            if status == "run":
                passed += 1
                for line in re.findall(r"^left out: (.*)$", case.findtext("system-out") or "", re.M):
                    skipped += 1
                    skips.write("%s: %s\n" % (name, line))
            elif status == "notrun" and case.find("skipped") is not None:
                why = reason(case)
                if os.environ.get("CI") == "true" and not MAY_SKIP.search(why):
                    failed += 1
                    failures.write("%s could not run, which CI=true does not accept: %s\n" % (name, why))
                else:
                    skipped += 1
                    skips.write("%s: %s\n" % (name, why))
            else:
                failed += 1
                failures.write("%s\n" % name)
    print(passed, failed, skipped)
    return 0


sys.exit(main())
