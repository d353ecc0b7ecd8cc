#!/usr/bin/env python3
"""Checks the npm packages of the page of the dashboard without a network.

    npm_lock.py [PROJECT]     PROJECT: the root of the sources; default: the one of this script

- Each package of the lock file has a hash, and comes from the registry in the settings of npm, by its name and version: not
  from git, a folder or another address. It therefore has no address (resolved).
- The lock file fits package.json.
- Each package that is in the page (no package of the build) has its licence in third_party/NAME, and notices.sh copies it.
"""
import json
import pathlib
import re
import sys

project = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
ui = project / "profiler/dashboard/ui"
package = json.loads((ui / "package.json").read_text())
lock = json.loads((ui / "package-lock.json").read_text())["packages"]
notices = (project / "third_party/notices.sh").read_text()
faults = []

root = lock.pop("")
for kind in ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies"):
    if root.get(kind, {}) != package.get(kind, {}):
        faults.append(f"{kind}: package-lock.json has {root.get(kind, {})}, package.json has {package.get(kind, {})}")
bundled = []
for path, entry in sorted(lock.items()):
    if not re.fullmatch(r"(node_modules/(@[\w.-]+/)?[\w.-]+/?)+", path):
        faults.append(f"{path}: it is no package below node_modules")
    if entry.get("link"):
        faults.append(f"{path}: it is a link to a folder")
    if not re.fullmatch(r"\d+\.\d+\.\d+(-[\w.-]+)?", entry.get("version", "")):
        faults.append(f"{path}: version {entry.get('version')!r}, want three numbers")
    if not re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", entry.get("integrity", "")):
        faults.append(f"{path}: integrity {entry.get('integrity')!r}, want the SHA-512 of the package")
    if "resolved" in entry:
        faults.append(f"{path}: it comes from {entry['resolved']}, want no address")
    if not entry.get("dev") and not entry.get("devOptional"):
        bundled.append(path.removeprefix("node_modules/"))
for name in bundled:
    if not (project / "third_party" / name / "LICENSE").is_file():
        faults.append(f"{name}: it is in the page, and third_party/{name}/LICENSE is missing")
    if f"take {name} third_party/{name}/LICENSE" not in notices:
        faults.append(f"{name}: it is in the page, and third_party/notices.sh does not copy its licence")
for fault in faults:
    print("audit: npm lock file:", fault)
if not faults:
    print(f"audit: npm lock file: {len(lock)} packages with a hash, in the page: {', '.join(bundled)}")
sys.exit(1 if faults else 0)
