#!/usr/bin/env python3
"""Brings oneDNN 3.2.0 for x86-64 Linux into third_party/onednn/{include,lib,share}.

The two wheels named in onednn.sha256 are looked for in third_party/.download, else fetched there with
`python3 -m pip download`. Nothing is unpacked before its SHA-256 has been checked, and the finished tree
appears in one rename, so an interrupted run leaves no half of it. Needs the standard library and, for the
download only, pip. Running it again is free.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
DOWNLOAD = os.path.join(HERE, ".download")
TREE = os.path.join(HERE, "onednn")
PINS = os.path.join(HERE, "onednn.sha256")
STAMP = os.path.join(TREE, "PINS")  # the pins the tree was made from: a changed pin makes it anew


class Failure(Exception):
    """A reason the user can act on."""


def read_pins():
    """Returns [(sha256, wheel file name)]."""
    with open(PINS, encoding="ascii") as file:
        return [tuple(line.split()) for line in file if line.strip()]


def requirement(wheel):
    """Turns `onednn_cpu_gomp-2023.2.0-py2…whl` into `onednn-cpu-gomp==2023.2.0`."""
    name, version = wheel.split("-")[:2]
    return f"{name.replace('_', '-')}=={version}"


def download(wheels):
    """Fetches the wheels into DOWNLOAD."""
    by_hand = f"or put {' and '.join(wheels)} into third_party/.download by hand"
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        raise Failure(f"pip is missing, it fetches oneDNN; run: sudo apt-get install python3-pip ({by_hand})")
    requirements = [requirement(wheel) for wheel in wheels]
    print(f"deps: fetching {' '.join(requirements)} into third_party/.download (39 MB)", flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "2",
               "--no-deps", "--only-binary=:all:", "--dest", DOWNLOAD, *requirements]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise Failure(f"pip download of oneDNN ended with status {done.returncode}; try again with a network, {by_hand}")


def verify(path, want):
    """Raises Failure, and removes the file, unless its SHA-256 is the pinned one."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    if digest.hexdigest() != want:
        os.remove(path)
        raise Failure(f"{os.path.basename(path)}: SHA-256 is {digest.hexdigest()}, want {want}; the file was removed, run make again")


def unpack(path, tree):
    """Merges the wheel's `*.data/data` folder into tree."""
    with zipfile.ZipFile(path) as wheel:
        for entry in wheel.infolist():
            parts = entry.filename.split("/")
            if entry.is_dir() or len(parts) < 3 or not parts[0].endswith(".data") or parts[1] != "data" or ".." in parts:
                continue
            target = os.path.join(tree, *parts[2:])
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with wheel.open(entry) as source, open(target, "wb") as file:
                shutil.copyfileobj(source, file)


def link_equal_libraries(folder):
    """Zip files hold no links, so the wheel carries the library three times: keep the longest name, link the others."""
    names = sorted((n for n in os.listdir(folder) if n.startswith("libdnnl.so")), key=len)
    real = names[-1]
    os.chmod(os.path.join(folder, real), 0o755)
    for name in names[:-1]:
        os.remove(os.path.join(folder, name))
        os.symlink(real, os.path.join(folder, name))


def build_tree(pins):
    partial = os.path.join(DOWNLOAD, f"onednn.partial.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for _, wheel in pins:
            unpack(os.path.join(DOWNLOAD, wheel), partial)
        link_equal_libraries(os.path.join(partial, "lib"))
        shutil.copyfile(PINS, os.path.join(partial, os.path.basename(STAMP)))
        shutil.rmtree(TREE, ignore_errors=True)
        os.rename(partial, TREE)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def up_to_date():
    try:
        with open(STAMP, encoding="ascii") as have, open(PINS, encoding="ascii") as want:
            return have.read() == want.read()
    except FileNotFoundError:
        return False


def main():
    if up_to_date():
        return 0
    try:
        pins = read_pins()
        os.makedirs(DOWNLOAD, exist_ok=True)
        missing = [wheel for _, wheel in pins if not os.path.exists(os.path.join(DOWNLOAD, wheel))]
        if missing:
            download(missing)
        for digest, wheel in pins:
            verify(os.path.join(DOWNLOAD, wheel), digest)
        build_tree(pins)
    except (Failure, OSError, zipfile.BadZipFile) as reason:
        print(f"deps: {reason}", file=sys.stderr)
        return 1
    print("deps: oneDNN is in third_party/onednn, hashes verified", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
