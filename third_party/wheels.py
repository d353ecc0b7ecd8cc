"""Downloads Python wheels whose SHA-256 is pinned, and unpacks them into one tree.

A pins file has one line per wheel, `<sha256>  <file name>`. If a wheel is not in third_party/.download, `python3 -m pip
download` downloads it there. The hash of a wheel is checked before the wheel is unpacked. The complete tree appears by one
rename, so an interrupted run leaves no partial tree. The module needs the standard library and, for the download only, pip.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
DOWNLOAD = os.path.join(HERE, ".download")
STAMP = "PINS"  # file in the installed tree with the pins; after a change of a pin, the tree is installed again


class Failure(Exception):
    """A reason the user can act on."""


def read_pins(path):
    """Returns [(sha256, wheel file name)]."""
    with open(path, encoding="ascii") as file:
        return [tuple(line.split()) for line in file if line.strip()]


def requirement(wheel):
    """Turns `onednn_cpu_gomp-2023.2.0-py2…whl` into `onednn-cpu-gomp==2023.2.0`."""
    name, version = wheel.split("-")[:2]
    return f"{name.replace('_', '-')}=={version}"


def download(what, size, wheels):
    """Fetches the wheels into DOWNLOAD."""
    by_hand = f"or put {' and '.join(wheels)} into third_party/.download by hand"
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        raise Failure(f"pip is missing, it fetches {what}; run: sudo apt-get install python3-pip ({by_hand})")
    requirements = [requirement(wheel) for wheel in wheels]
    print(f"deps: fetching {' '.join(requirements)} into third_party/.download ({size})", flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "2",
               "--no-deps", "--only-binary=:all:", "--dest", DOWNLOAD, *requirements]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise Failure(f"pip download of {what} ended with status {done.returncode}; try again with a network, {by_hand}")


def verify(path, want):
    """Raises Failure, and removes the file, unless its SHA-256 is the pinned one."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    if digest.hexdigest() != want:
        os.remove(path)
        raise Failure(f"{os.path.basename(path)}: SHA-256 is {digest.hexdigest()}, want {want}; the file was removed, run make again")


def unpack(path, tree, place):
    """Writes the wheel's files into tree; place gives a file's path there as a list, None to leave it out."""
    with zipfile.ZipFile(path) as wheel:
        for entry in wheel.infolist():
            parts = entry.filename.split("/")
            target = None if entry.is_dir() or ".." in parts or entry.filename.startswith("/") else place(parts)
            if not target:
                continue
            target = os.path.join(tree, *target)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with wheel.open(entry) as source, open(target, "wb") as file:
                shutil.copyfileobj(source, file)


def up_to_date(pins, tree):
    """Whether tree was made from these pins."""
    try:
        with open(os.path.join(tree, STAMP), encoding="ascii") as have, open(pins, encoding="ascii") as want:
            return have.read() == want.read()
    except FileNotFoundError:
        return False


def make_tree(pins, tree, what, size, place, finish):
    """Makes tree of the pinned wheels; finish(partial tree) does what files alone cannot say. True if it was not there yet."""
    if up_to_date(pins, tree):
        return False
    wheels = read_pins(pins)
    os.makedirs(DOWNLOAD, exist_ok=True)
    missing = [wheel for _, wheel in wheels if not os.path.exists(os.path.join(DOWNLOAD, wheel))]
    if missing:
        download(what, size, missing)
    for digest, wheel in wheels:
        verify(os.path.join(DOWNLOAD, wheel), digest)
    partial = os.path.join(DOWNLOAD, f"{os.path.basename(tree)}.partial.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for _, wheel in wheels:
            unpack(os.path.join(DOWNLOAD, wheel), partial, place)
        finish(partial)
        shutil.copyfile(pins, os.path.join(partial, STAMP))
        shutil.rmtree(tree, ignore_errors=True)
        os.rename(partial, tree)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


def run(make, done):
    """Runs make for a script: its exit status, with the reason on standard error, or done on standard output."""
    try:
        if make():
            print(f"deps: {done}, hashes verified", flush=True)
    except (Failure, OSError, zipfile.BadZipFile) as reason:
        print(f"deps: {reason}", file=sys.stderr)
        return 1
    return 0
