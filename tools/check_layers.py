#!/usr/bin/env python3
"""tools/check_layers.py - includes point down: the rules of layers.txt, read from the code.

usage: check_layers.py [ROOT]
 - a file of layer X includes headers of X and of what X reaches in layers.txt, written from the root
 - x_priv.h is seen in its own folder only (and by its unit tests and fuzz targets)
 - <event2/...> is included in *_io.c only (rpc/ also where its sessions live)
 - proto, policy and audit's core do no logging and no I/O loop
Exit 1 with one line a breach: file:line: what, and what to do instead.
"""
import pathlib
import re
import sys

# rpc's server and client halves are the I/O edge of that layer; splitting them again would only
# move the same calls.
EVENT2_ALSO = {"rpc"}
PURE = {"proto": (), "policy": (), "audit": ("producer_io.c",)}
# Programs that are built of several layers on purpose.
FREE = {"tests", "bench", "tools", "images"}


def read_layers(path):
    direct = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, _, deps = line.partition("<-")
            direct[name.strip()] = deps.split()

    def reach(name, seen):
        for dep in direct.get(name, ()):
            if dep not in seen:
                seen.add(dep)
                reach(dep, seen)
        return seen

    return {name: reach(name, {name}) for name in direct}


def check_file(root, path, layers):
    rel = path.relative_to(root)
    layer = rel.parts[0]
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        quoted = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        system = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        where = f"{rel}:{number}"
        if quoted:
            header = quoted.group(1)
            top = header.split("/")[0]
            if header.endswith("_priv.h") and pathlib.PurePath(header).parent != rel.parent:
                own_test = rel.parts[:3] == ("tests", "unit", top) or rel.parts[:2] == ("tests", "fuzz")
                if not own_test:
                    yield f"{where}: '{header}' is private to its folder; include its public header"
            if layer not in FREE and top in layers and top not in layers[layer]:
                yield f"{where}: layer '{layer}' may not include '{top}' (layers.txt); move the code or the need"
            if "/" not in header and top not in layers:
                yield f"{where}: write '{header}' from the root of the repository"
        if system and system.group(1).startswith("event2/") and layer not in FREE:
            if not path.name.endswith("_io.c") and layer not in EVENT2_ALSO:
                yield f"{where}: only *_io.c includes <event2/...>; move the callback there"
        if quoted and layer in PURE and path.name not in PURE[layer] and "writer" not in rel.parts:
            if quoted.group(1) == "observability/log.h":
                yield f"{where}: layer '{layer}' is pure and does not log; return an error instead"


def main():
    if len(sys.argv) > 1 and sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    layers = read_layers(root / "layers.txt")
    breaches, files = [], 0
    for folder in sorted(list(layers) + ["tests", "bench"]):
        for path in sorted((root / folder).rglob("*.[ch]")):
            files += 1
            breaches += check_file(root, path, layers)
    for breach in breaches:
        print(breach)
    print(f"check_layers: {files} files, {len(breaches)} breaches")
    return 1 if breaches or not files else 0


if __name__ == "__main__":
    sys.exit(main())
