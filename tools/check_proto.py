#!/usr/bin/env python3
"""tools/check_proto.py - no recursive message types, no proto3 `optional`, zero is UNSPECIFIED.

usage: check_proto.py [ROOT]
protobuf-c unpacks without a depth limit of its own; a message type that holds itself would let a
peer choose the depth.
"""
import pathlib
import re
import sys


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    fields, bad, enums = {}, [], 0
    for path in sorted((root / "proto").rglob("*.proto")):
        message = None
        text = re.sub(r"//.*", "", path.read_text())
        for number, line in enumerate(text.splitlines(), 1):
            if re.match(r"\s*optional\s", line):
                bad.append(f"{path}:{number}: proto3 optional; protoc-c cannot do it, use a message or a oneof")
            if m := re.match(r"message (\w+)", line):
                message = m.group(1)
                fields.setdefault(message, set())
            if m := re.match(r"enum (\w+)", line):
                enums += 1
                first = re.search(r"enum " + m.group(1) + r"\s*\{\s*(\w+)\s*=\s*(\d+)", text)
                if not first or first.group(2) != "0" or not first.group(1).endswith("_UNSPECIFIED"):
                    bad.append(f"{path}:{number}: enum {m.group(1)} must begin with ..._UNSPECIFIED = 0")
            if message and (m := re.match(r"\s+(?:repeated\s+)?([A-Z]\w*)\s+\w+\s*=", line)):
                fields[message].add(m.group(1))

    def reaches(start, at, seen):
        for kind in fields.get(at, ()):
            if kind == start:
                return True
            if kind not in seen:
                seen.add(kind)
                if reaches(start, kind, seen):
                    return True
        return False

    bad += [f"message {m} holds itself; use ids or a flat list" for m in fields if reaches(m, m, set())]
    print("\n".join(bad + [f"check_proto: {len(fields)} messages, {enums} enums, {len(bad)} breaches"]))
    return 1 if bad or not fields else 0


sys.exit(main())
