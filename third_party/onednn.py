#!/usr/bin/env python3
"""Installs oneDNN 3.2.0 for x86-64 Linux in onednn/{include,lib,share} of third_party or HETERO_FETCHED (see wheels.py).

A second run does nothing.
"""
import os
import sys

import wheels


def place(parts):
    """Merges the wheels' `*.data/data` folders."""
    return parts[2:] if len(parts) > 2 and parts[0].endswith(".data") and parts[1] == "data" else None


def link_equal_libraries(tree):
    """Zip files hold no links, so the wheel carries the library three times: keep the longest name, link the others."""
    folder = os.path.join(tree, "lib")
    names = sorted((n for n in os.listdir(folder) if n.startswith("libdnnl.so")), key=len)
    real = names[-1]
    os.chmod(os.path.join(folder, real), 0o755)
    for name in names[:-1]:
        os.remove(os.path.join(folder, name))
        os.symlink(real, os.path.join(folder, name))


def make():
    return wheels.make_tree(os.path.join(wheels.HERE, "onednn.sha256"), os.path.join(wheels.FETCHED, "onednn"),
                            "oneDNN", "39 MB", place, link_equal_libraries)


if __name__ == "__main__":
    sys.exit(wheels.run(make, f"oneDNN is in {wheels.FETCHED}/onednn"))
