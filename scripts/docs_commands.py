#!/usr/bin/env python3
"""Runs the commands of pages and of the help in their order, each page in an empty folder.

    scripts/docs_commands.py [--root DIR] [--list] [PAGE...]        default: all pages, and help
    scripts/docs_commands.py [--root DIR] [--list] help [COMMAND]   the examples of the help, or of one command: help 'bench ops'
    scripts/docs_commands.py --images DIR CLASS,CLASS N             write N small images for each class
    scripts/docs_commands.py --data NAME PATH                       make PATH a link to public data in HETERO_DATA, or exit with 77
    scripts/docs_commands.py --checkout DIR                         make a folder with links to the files of this checkout

A command is in a fenced block without a language, or of the language sh. A block of the language python runs if it has
a mark. A page that clones the repository starts in an empty folder. Other pages start in a checkout. A checkout here
has links to the files of this one, which must be built: make only installs, and tests run in this one. HOME has a
checkout, too. The program is in PATH. A block starts in the folder, and with the exported variables, in which the
previous block ended. Comments of a page before a block change how it runs:

    <!-- docs: skip REASON -->        the block cannot run here
    <!-- docs: except A => REASON --> lines with the text A cannot run here
    <!-- docs: needs PROGRAM... -->   the block does not run on a machine without these programs
    <!-- docs: python MODULE... -->   the block runs with a Python that has these modules: HETERO_PYTHON, or the first in PATH
    <!-- docs: add ARGUMENTS -->      commands that train get these arguments, so that they end soon
    <!-- docs: replace A => B -->     B instead of A in the commands, for example a smaller number
    <!-- docs: before COMMAND -->     a command that runs first, for example to make the files that the block reads
    <!-- docs: exit CODE -->          the exit code of the block, 0 by default
    <!-- docs: seconds N -->          the longest time of the block, 300 by default
    <!-- docs: stop N -->             each line is a server: it gets SIGTERM after N seconds
    <!-- docs: file NAME -->          the block is the text of this file, which exists before the first command

Exit code 77 of a block means that it cannot run here; the last line of its output is the reason.
In all blocks, the named programs, files, flags and keys must exist. The examples of the help have marks in
docs_help.py. The output has a line for each block. It ends with the number of blocks of each page, and with what did not run,
with the reasons. Exit code 1: a block failed; 2: a named page or command has no commands.
"""
import argparse
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import docs_exist
import docs_help
from docs_blocks import ROOT, Block, blocks, pages

PYTHON = shutil.which(os.environ.get("HETERO_PYTHON") or "python3")
STOPPED = (0, 75, 130, 143, -signal.SIGTERM)

WRAPPER = """#!/bin/bash
# The commands that train get the arguments of the page's mark; in an example of the help, each command does.
[ -z "${DOCS_HELP:-}" ] || exec "%(root)s/hetero-train" "$@" $DOCS_ADD
case "${1:-} ${2:-}" in
"train "* | "-c "* | "--config "* | "--set "* | "schedule train" | "balance compare") exec "%(root)s/hetero-train" "$@" $DOCS_ADD ;;
esac
exec "%(root)s/hetero-train" "$@"
"""
# Programs that replace those of the machine. A test runs in this checkout, so that it is compiled once for all pages.
REPLACED = {
    "hetero-train": WRAPPER,
    "sudo": """#!/bin/bash
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
exec "$@"
""",
    "make": """#!/bin/bash
for target; do
    case $target in *=*) continue ;; esac
    grep -q "^$target:" "%(root)s/Makefile" || { echo "make: no target $target" >&2; exit 2; }
done
case "$*" in *install*) exec %(make)s -C "%(root)s" "$@" ;; esac
echo "make $*: this checkout is built"
""",
    "git": """#!/bin/bash
[ "${1:-} ${2:-}" != "clone https://github.com/hetero-train/hetero-train" ] || exec "%(root)s/scripts/docs_commands.py" --checkout hetero-train
exec %(git)s "$@"
""",
    "go": """#!/bin/bash
case "$*" in
test* | *./...*) [ ! -L go.mod ] || cd "%(root)s" ;;
*) export GOFLAGS="${GOFLAGS:-} -trimpath" ;;
esac
exec %(go)s "$@"
""",
    "apt-get": """#!/bin/bash
echo "apt-get $*: nothing is installed here"
""",
}
CANNOT_RUN = 77


def program_at(path, text):
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def checkout(folder):
    """Makes a folder with links to the files of this checkout, and the program behind a wrapper."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True,
                             check=True).stdout.splitlines()
    for name in sorted({path.split("/")[0] for path in tracked} | {"build"}):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    program_at(folder / "hetero-train", WRAPPER % {"root": ROOT})


class Place:
    """The folder in which the blocks of a page run, one after another."""

    def __init__(self, work, name, files, start):
        """start is "empty", "checkout", or the folder that is copied."""
        self.folder, self.programs, self.state = Path(work) / name, Path(work) / "bin", Path(work) / (name + ".state")
        self.groups = []
        self.state.unlink(missing_ok=True)
        if start == "empty":
            self.folder.mkdir()
        elif start == "checkout":
            checkout(self.folder)
        else:
            shutil.copytree(start, self.folder, symlinks=True, copy_function=os.link)
        for file, text in files.items():
            (self.folder / file).write_text(text)
        home = Path(work) / "home"
        if not home.exists():
            checkout(home / "hetero-train")
            self.programs.mkdir()
            values = {"root": ROOT, "make": shutil.which("make"), "git": shutil.which("git"), "go": shutil.which("go")
                      or "go"}
            for program, text in REPLACED.items():
                program_at(self.programs / program, text % values)
        known = {key: value for key, value in os.environ.items()
                 if not key.startswith(("HETERO_LIB_DIR", "HETERO_REQUIRE", "MAKE", "MFLAGS"))}
        caches = subprocess.run(["go", "env", "GOCACHE", "GOMODCACHE", "GOPATH"], capture_output=True,
                                text=True).stdout.splitlines() if shutil.which("go") else []
        self.env = dict(known, **dict(zip(("GOCACHE", "GOMODCACHE", "GOPATH"), caches)), HOME=str(home),
                        XDG_CACHE_HOME=str(Path(work) / "cache"))

    def run(self, block):
        """Runs a block. Returns "ok", or what was wrong, and the output."""
        if not block.stop:
            return self.execute(block, [*block.before, block.text])
        result, said = self.execute(block, block.before)
        for line in block.runs():
            if result == "ok":
                result, said = self.execute(block, [line], block.stop)
        return result, said

    def execute(self, block, commands, stop=0):
        """Runs commands. With stop, they get SIGTERM after this number of seconds."""
        state = shlex.quote(str(self.state))
        text = "\n".join(
            [f"[ ! -e {state} ] || . {state}",
             f"export DOCS_ADD={shlex.quote(block.add)} DOCS_HELP={'' if block.line else 1}", self.path_of(block),
                          f"""trap '{{ declare -px; echo "cd $(printf %q "$PWD")"; }} >{state}' EXIT""",
                          "set -eo pipefail", *commands])
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(["bash", "-c", text], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=out, start_new_session=True)
            self.groups.append(process.pid)
            late = stopped = False
            try:
                process.wait(stop or block.seconds)
            except subprocess.TimeoutExpired:
                late, stopped = not stop, bool(stop)
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            out.seek(0)
            said = out.read().decode(errors="replace")
        code = process.returncode
        if late:
            return f"not done after {block.seconds:g} s", said
        if code == CANNOT_RUN:
            return "skip: " + (said.strip().splitlines() or ["exit code 77"])[-1], said
        if stop and not stopped:
            return f"ended within {stop:g} s with exit code {code}, want a server", said
        if stop and code in STOPPED:
            return "ok", said
        return ("ok" if code == block.exit else f"exit code {code}, want {block.exit}"), said

    def path_of(self, block):
        """Returns the command that puts the programs of this script, and the Python of a block, first in PATH."""
        path = [str(self.programs), *([os.path.dirname(PYTHON)] if block.python else [])]
        return f"export PATH={shlex.quote(':'.join(path))}:$PATH"

    def end(self):
        """Ends the processes that blocks left running."""
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:
                pass


def cpu():
    """Returns the CPU time of the processes that have ended, in seconds."""
    times = os.times()
    return times.children_user + times.children_system


def lacks(block):
    """Returns what this machine lacks for a block, or ""."""
    missing = [name for name in block.needs if not shutil.which(name)]
    if missing:
        return "needs " + ", ".join(missing)
    if not block.python:
        return ""
    imports = subprocess.run([PYTHON, "-c", "import " + ", ".join(block.python)], capture_output=True)
    return "" if imports.returncode == 0 else "needs the Python packages " + ", ".join(block.python)


def result_of(block, place):
    """Returns "ok", "skip: REASON" or a failure, and the output."""
    if faults := docs_exist.faults(block.written):
        return "names what does not exist", "\n".join(faults)
    if reason := block.skip or lacks(block):
        return f"skip: {reason}", ""
    return place.run(block)


def images(folder, classes, count):
    """Writes images of 40 x 30 pixels whose colours depend on the class. They are PNG images, whatever their names
    say."""
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    for k, name in enumerate(classes):
        (Path(folder) / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            rows = b"".join(b"\0" + bytes(v for x in range(40) for v in ((60 * k + 5 * i) % 256, 4 * x, 6 * y))
                            for y in range(30))
            data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)) + chunk(
                b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
            (Path(folder) / name / f"{i + 1:03d}.jpg").write_bytes(data)


def data(name, path):
    """Makes a link to public data, which tests search in the same folders (CONTRIBUTING.md)."""
    for folder in filter(None, (os.environ.get("HETERO_DATA"), ROOT.parent / "shared" / "data")):
        if (Path(folder) / name).exists():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).symlink_to((Path(folder) / name).resolve())
            return 0
    print(f"needs the public data {name} in HETERO_DATA", file=sys.stderr)
    return CANNOT_RUN


def parts(args):
    """Yields the name of each page and of each command with examples, its blocks, its files, and the number of its
    other blocks."""
    named = args.pages or [*pages(), "help"]
    if named[0] == "help":
        named, only = ["help"], " ".join(named[1:])
    else:
        only = ""
    for page in named:
        if page == "help":
            found = [(name, examples, {}, 0) for name, examples in docs_help.examples(only)]
        else:
            found = [(page, *blocks(page))] if (ROOT / page).is_file() else []
        if args.pages and not any(part[1] for part in found):
            print(f"docs_commands: {' '.join(filter(None, (page, only)))}: there are no commands of this name",
                  file=sys.stderr)
            sys.exit(2)
        yield from found


def start_of(name, found, work):
    """Returns the folder in which a page or the examples of a command start."""
    if any("git clone https://github.com/hetero-train/hetero-train" in block.text and not block.skip
           for block in found):
        return "empty"
    if not name.startswith("help"):
        return "checkout"
    prepared = Path(work) / "prepared"
    if not prepared.exists():
        result, said = Place(work, "prepared", docs_help.files(), "checkout").execute(
            Block("docs_help.py", 1, "", [("seconds", "900")]), [docs_help.PREPARE])
        if result != "ok":
            sys.exit(f"docs_commands: the files for the examples of the help: {result}\n{said}")
    return prepared


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--root",
                        help="folder for the folders of the pages; default: a temporary folder, which is removed")
    parser.add_argument("--list", action="store_true", help="print the blocks, and run nothing")
    parser.add_argument("--images", nargs=3, metavar=("DIR", "CLASSES", "N"),
                        help="write small images, and run nothing")
    parser.add_argument("--data", nargs=2, metavar=("NAME", "PATH"), help="make a link to public data, and run nothing")
    parser.add_argument("--checkout", metavar="DIR",
                        help="make a folder with links to the files of this checkout, and run nothing")
    args = parser.parse_args()
    if args.checkout:
        return checkout(args.checkout)
    if args.data:
        return data(*args.data)
    if args.images:
        return images(args.images[0], args.images[1].split(","), int(args.images[2]))
    if not (ROOT / "hetero-train").exists():
        sys.exit("docs_commands: there is no ./hetero-train: run make first")
    named = list(parts(args))
    work = args.root or tempfile.mkdtemp(prefix="docs_commands_")
    Path(work).mkdir(parents=True, exist_ok=True)
    table, skipped, failed, begin = [], [], [], time.monotonic()
    try:
        for name, found, files, others in named:
            if args.list:
                for block in found:
                    print(f"{block.place}: {block.skip and 'skip: ' + block.skip or block.text.splitlines()[0]}")
                continue
            if not found:
                continue
            place = None
            counts = {"ok": 0, "skip": 0, "failed": 0}
            first, used = time.monotonic(), cpu()
            for number, block in enumerate(found, 1):
                start = time.monotonic()
                if not place or not block.line:  # each example of the help has its folder
                    place = Place(work, f"{name.replace('/', '_').replace(' ', '_').removesuffix('.md')}_{number}",
                                  files, start_of(name, found, work))
                result, said = result_of(block, place)
                print(f"{block.place}: {result}" + ("" if result.startswith("skip")
                                                    else f", {time.monotonic() - start:.1f} s"), flush=True)
                if result == "ok":
                    counts["ok"] += 1
                    skipped += [f"{block.place}: lines with {part}: {reason}" for part, reason in block.excepted]
                elif result.startswith("skip: "):
                    counts["skip"] += 1
                    skipped.append(f"{block.place}: {result[6:]}")
                else:
                    counts["failed"] += 1
                    failed.append(f"{block.place}: {result}")
                    print("\n".join("    " + line for line in (block.text + "\n" + said[-3000:]).splitlines()),
                          flush=True)
                if block is found[-1] or not block.line:
                    place.end()
            table.append((name, counts["ok"], counts["failed"], counts["skip"], others, time.monotonic() - first,
                          cpu() - used))
    finally:
        if not args.root:
            shutil.rmtree(work, ignore_errors=True)
    if args.list:
        return 0
    print(f"\n{'page':<28} {'ran':>5} {'failed':>7} {'not run':>8} {'no commands':>12} {'seconds':>8} {'CPU s':>7}")
    for row in [*table, ("all", *(sum(row[k] for row in table) for k in range(1, 5)), time.monotonic() - begin, cpu())]:
        print(f"{row[0]:<28} {row[1]:>5} {row[2]:>7} {row[3]:>8} {row[4]:>12} {row[5]:>8.0f} {row[6]:>7.0f}")
    for line in skipped:
        print(f"  not run: {line}")
    for line in failed:
        print(f"  FAILED: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
