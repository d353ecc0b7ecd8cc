"""Downloads Python wheels whose SHA-256 is pinned, and unpacks them into one tree.

A pins file has one line per wheel, `<sha256>  <file name>`. Wheels for other processors are left out. If a wheel is not in
the folder .download, `pip download` downloads it there. The hash of a wheel is checked before the wheel is unpacked. The
complete tree appears by one rename, so an interrupted run leaves no partial tree. The module needs the standard library
and, for the download only, pip. `pip download` works where PEP 668 forbids `pip install`.

HETERO_FETCHED names the folder for .download and for the trees; the default is third_party.
"""
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
FETCHED = os.path.abspath(os.environ.get("HETERO_FETCHED") or HERE)
DOWNLOAD = os.path.join(FETCHED, ".download")
OLDEST_PIP = (20, 3)  # knows the platform tags of all pinned wheels
STAMP = "PINS"  # file in the installed tree with the pins; after a change of a pin, the tree is installed again


class Failure(Exception):
    """A reason the user can act on."""


def read_pins(path, machine=platform.machine()):
    """Returns [(sha256, wheel file name)] of the wheels for this kind of processor."""
    with open(path, encoding="ascii") as file:
        pins = [tuple(line.split()) for line in file if line.strip()]
    fitting = [pin for pin in pins if pin[1].endswith((f"_{machine}.whl", "-any.whl"))]
    if not fitting:
        raise Failure(f"{os.path.basename(path)} has no wheel for the processor {machine}, only {', '.join(name for _, name in pins)}")
    return fitting


def requirement(wheel):
    """Turns `onednn_cpu_gomp-2023.2.0-py2…whl` into `onednn-cpu-gomp==2023.2.0`."""
    name, version = wheel.split("-")[:2]
    return f"{name.replace('_', '-')}=={version}"


def pip_version(command):
    """Returns the version of a pip as (major, minor), or None if there is none."""
    try:
        done = subprocess.run([*command, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return None
    words = done.stdout.decode(errors="replace").split()
    if done.returncode or len(words) < 2 or words[0] != "pip":
        return None
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in words[1].split(".")[:2])


def find_pip(what, by_hand):
    """Returns the command of a pip. If this Python has none, or an old one, its module venv makes an environment with a
    pip."""
    own = [sys.executable, "-m", "pip"]
    version = pip_version(own)
    if version and version >= OLDEST_PIP:
        return own
    environment = os.path.join(DOWNLOAD, "pip")
    pip = [os.path.join(environment, "bin", "python3"), "-m", "pip"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
    try:
        if not pip_version(pip):
            subprocess.run([sys.executable, "-m", "venv", "--clear", environment], **quiet)
        if (pip_version(pip) or (0, 0)) < OLDEST_PIP:
            subprocess.run([*pip, "install", "--upgrade", "pip"], **quiet)
    except (OSError, subprocess.CalledProcessError):
        shutil.rmtree(environment, ignore_errors=True)
        found = "is missing" if not version else \
            f"is {version[0]}.{version[1]}, want {OLDEST_PIP[0]}.{OLDEST_PIP[1]} or later"
        raise Failure(f"pip {found}, it fetches {what}; run: sudo apt-get install python3-pip ({by_hand})") from None
    return pip


def download(what, size, wheels, machine):
    """Fetches the wheels into DOWNLOAD."""
    by_hand = f"or put {' and '.join(wheels)} into {DOWNLOAD} by hand"
    pip = find_pip(what, by_hand)
    requirements = [requirement(wheel) for wheel in wheels]
    print(f"deps: fetching {' '.join(requirements)} into {DOWNLOAD} ({size})", flush=True)
    command = [*pip, "download", "--quiet", "--disable-pip-version-check", "--retries", "2",
               "--no-deps", "--only-binary=:all:", "--dest", DOWNLOAD, *requirements]
    if machine != platform.machine():
        command[-len(requirements):-len(requirements)] = ["--platform", f"manylinux2014_{machine}"]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise Failure(
            f"pip download of {what} ended with status {done.returncode}; try again with a network, {by_hand}")


def place_of(wheel):
    """Returns the path of a wheel that was downloaded, or put into third_party/.download by hand."""
    for folder in (DOWNLOAD, os.path.join(HERE, ".download")):
        if os.path.exists(os.path.join(folder, wheel)):
            return os.path.join(folder, wheel)
    return None


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
    """Writes the wheel's files into tree; place gives a file's path there as a list, None to leave it out. Programs
    stay executable."""
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
            if entry.external_attr >> 16 & 0o111:
                os.chmod(target, 0o755)


def up_to_date(pins, tree):
    """Whether tree was made from these pins."""
    try:
        with open(os.path.join(tree, STAMP), encoding="ascii") as have, open(pins, encoding="ascii") as want:
            return have.read() == want.read()
    except FileNotFoundError:
        return False


def make_tree(pins, tree, what, size, place, finish, machine=platform.machine()):
    """Makes tree of the pinned wheels for machine; finish(partial tree) does what files alone cannot say. True if it
    was not there yet."""
    if up_to_date(pins, tree):
        return False
    wheels = read_pins(pins, machine)
    os.makedirs(DOWNLOAD, exist_ok=True)
    missing = [wheel for _, wheel in wheels if not place_of(wheel)]
    if missing:
        download(what, size, missing, machine)
    for digest, wheel in wheels:
        if not place_of(wheel):
            raise Failure(
                f"pip downloaded another wheel of {what} than {wheel}; put this wheel into {DOWNLOAD} by hand")
        verify(place_of(wheel), digest)
    partial = os.path.join(DOWNLOAD, f"{os.path.basename(tree)}.partial.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for _, wheel in wheels:
            unpack(place_of(wheel), partial, place)
        finish(partial)
        shutil.copyfile(pins, os.path.join(partial, STAMP))
        shutil.rmtree(tree, ignore_errors=True)
        os.makedirs(os.path.dirname(tree), exist_ok=True)
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
