#!/usr/bin/env python3
"""Runs the commands of pages in their order, each page in an empty folder.

    scripts/docs_commands.py [--root DIR] [--list] [PAGE...]        default: PAGES
    scripts/docs_commands.py --images DIR CLASS,CLASS N             write N small images for each class
    scripts/docs_commands.py --data NAME PATH                       make PATH a link to public data in HETERO_DATA, or exit with 77
    scripts/docs_commands.py --checkout DIR                         make a folder with links to the files of this checkout

A command is in a fenced block without a language, or of the language sh. A page that clones the repository starts in an empty
folder, and continues in the clone. Other pages start in a checkout. A checkout here has links to the files of this one, which
must be built: make does nothing. The program is in PATH. Comments of a page before a block change how it runs:

    <!-- docs: skip REASON -->        the block cannot run here
    <!-- docs: add ARGUMENTS -->      commands that train get these arguments, so that they end soon
    <!-- docs: before COMMAND -->     a command that runs first, for example to make the files that the block reads
    <!-- docs: exit CODE -->          the exit code of the block, 0 by default
    <!-- docs: seconds N -->          the longest time of the block, 120 by default
    <!-- docs: stop N -->             the block is a server: it gets SIGTERM after N seconds
    <!-- docs: needs PROGRAM... -->   the block does not run on a machine without these programs
    <!-- docs: python MODULE... -->   the block runs with a Python that has these modules: HETERO_PYTHON, or the first in PATH
    <!-- docs: file NAME -->          the block is the text of this file, which exists before the first command

Exit code 77 of a block means that it cannot run here; the last line of its output is the reason.
The output has a line for each block. It ends with the blocks that did not run, with the reasons. Exit code 1: a block failed.
"""
import argparse
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Pages whose commands have marks where they need them.
PAGES = ["README.md", *(f"docs/{name}.md" for name in ("quickstart", "commands", "data", "training", "augmentation", "lab"))]
MARK = re.compile(r"<!-- docs: (\w+) ?(.*?) ?-->")
MARKS = ("skip", "add", "before", "exit", "seconds", "stop", "needs", "python")
PROGRAMS = r"""kill|jq|(\./|/\S+/)?hetero-train|make|go|git|sudo|source|export|for|while|if|cd|python3|pip|curl|tensorboard|mlflow|promtool|kubectl|torchrun|mpirun
|mpiexec|srun|sbatch|docker|podman|tar|wget|openssl|module|wsl|nohup|apt-get|prometheus|unshare|strace|truncate|hf|echo|printf|cat
|\.venv/\S+|scripts/\S+|\.ci/\S+|third_party/\S+|build/\S+|\S+/bin/\S+"""
COMMAND = re.compile(r"^([A-Z_][A-Z0-9_]*=(\"[^\"]*\"|'[^']*'|\S*)\s+)*(" + PROGRAMS.replace("\n", "") + r")(\s|$)")
STOPPED = (0, 75, 130, 143, -signal.SIGTERM)

WRAPPER = """#!/bin/bash
# The commands that train get the arguments of the page's mark.
case "${1:-} ${2:-}" in
"train "* | "-c "* | "--config "* | "--set "* | "schedule train" | "balance compare") exec "%(program)s" "$@" $DOCS_ADD ;;
esac
exec "%(program)s" "$@"
"""
GIT = """#!/bin/bash
[ "${1:-} ${2:-}" != "clone https://github.com/hetero-train/hetero-train" ] || exec "%(script)s" --checkout hetero-train
exec %(git)s "$@"
"""
MAKE = """#!/bin/bash
echo "make $*: this checkout is built"
"""
SUDO = """#!/bin/bash
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
exec "$@"
"""
CANNOT_RUN = 77


class Block:
    def __init__(self, page, line, text, marks):
        self.page, self.line, self.text = page, line, text
        of = lambda name: [value for key, value in marks if key == name]
        self.skip = (of("skip") or [""])[0]
        self.add = " ".join(of("add"))
        self.before = of("before")
        self.needs = " ".join(of("needs")).split()
        self.python = " ".join(of("python")).split()
        self.exit = int((of("exit") or ["0"])[0])
        self.seconds = float((of("seconds") or ["120"])[0])
        self.stop = float((of("stop") or ["0"])[0])
        unknown = [key for key, _ in marks if key not in MARKS]
        if unknown:
            sys.exit(f"docs_commands: {self.place}: unknown mark {unknown[0]}")

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def blocks(page):
    """Returns the blocks of commands of a page, the texts of files, and the number of other blocks without a language."""
    found, files, others, marks, fence, start, language = [], {}, 0, [], None, 0, ""
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if fence is not None:
            if line.strip() != "```":
                fence.append(line)
                continue
            first = next((text for text in fence if text.strip() and not text.startswith("#")), "")
            assigns = re.match(r"^[A-Z]+=\"", first) and any(COMMAND.match(text) for text in fence)
            name = [value for key, value in marks if key == "file"]
            if name:
                files[name[0]] = "\n".join(fence) + "\n"
            elif language in ("", "sh", "bash") and (COMMAND.match(first) or assigns):
                found.append(Block(page, start, "\n".join(fence), marks))
            elif language == "":
                others += 1
                if marks:
                    sys.exit(f"docs_commands: {page}:{start}: a mark, but no known command")
            fence, marks = None, []
        elif line.startswith("```"):
            fence, start, language = [], number, line[3:].strip()
        elif MARK.match(line):
            marks.append(MARK.match(line).groups())
        elif line.strip():
            if marks:
                sys.exit(f"docs_commands: {page}:{number}: a mark without a block after it")
    return found, files, others


def program_at(path, text):
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def checkout(folder):
    """Makes a folder with links to the files of this checkout, and the program behind a wrapper."""
    folder = Path(folder)
    folder.mkdir()
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    for name in sorted({path.split("/")[0] for path in tracked} | {"build"}):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    program_at(folder / "hetero-train", WRAPPER % {"program": ROOT / "hetero-train"})


def folders_for(page, found, files, work):
    """Makes the folder in which a page starts, and the folder of programs that replace those of the machine."""
    folder, programs = Path(work) / page.replace("/", "_").removesuffix(".md"), Path(work) / "bin"
    if any("git clone https://github.com/hetero-train/hetero-train" in block.text and not block.skip for block in found):
        folder.mkdir()
    else:
        checkout(folder)
    for name, text in files.items():
        (folder / name).write_text(text)
    programs.mkdir(exist_ok=True)
    for name, text in (("hetero-train", WRAPPER % {"program": ROOT / "hetero-train"}), ("sudo", SUDO), ("make", MAKE),
                       ("git", GIT % {"script": Path(__file__).resolve(), "git": shutil.which("git")})):
        program_at(programs / name, text)
    return folder, programs


def lacks(block):
    """Returns what this machine lacks for a block, and the folder of the block's Python."""
    missing = [name for name in block.needs if not shutil.which(name)]
    if missing:
        return "needs " + ", ".join(missing), ""
    if not block.python:
        return "", ""
    python = shutil.which(os.environ.get("HETERO_PYTHON") or "python3") or ""
    if not python:
        return "needs Python", ""
    imports = subprocess.run([python, "-c", "import " + ", ".join(block.python)], capture_output=True)
    return ("" if imports.returncode == 0 else "needs the Python packages " + ", ".join(block.python)), os.path.dirname(python)


def run(block, folder, programs):
    """Runs a block. Returns "ok", or what was wrong, and the output."""
    missing, python = lacks(block)
    if missing:
        return f"skip: {missing}", ""
    path = ":".join(part for part in (str(programs), python, os.environ["PATH"]) if part)
    env = dict(os.environ, PATH=path, DOCS_ADD=block.add, XDG_CACHE_HOME=str(folder.parent / "cache"))
    clone = folder / "hetero-train"
    text = "\n".join(["set -eo pipefail", *block.before, block.text])
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(["bash", "-c", text], cwd=clone if clone.is_dir() else folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        late = False
        try:
            process.wait(block.stop or block.seconds)
        except subprocess.TimeoutExpired:
            late = not block.stop
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
    if block.stop and code in STOPPED:
        return "ok", said
    return ("ok" if code == block.exit else f"exit code {code}, want {block.exit}"), said


def images(folder, classes, count):
    """Writes images of 40 x 30 pixels whose colours depend on the class. They are PNG images, whatever their names say."""
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    for k, name in enumerate(classes):
        (Path(folder) / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            rows = b"".join(b"\0" + bytes(v for x in range(40) for v in ((60 * k + 5 * i) % 256, 4 * x, 6 * y)) for y in range(30))
            data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--root", help="folder for the folders of the pages; default: a temporary folder, which is removed")
    parser.add_argument("--list", action="store_true", help="print the blocks, and run nothing")
    parser.add_argument("--images", nargs=3, metavar=("DIR", "CLASSES", "N"), help="write small images, and run nothing")
    parser.add_argument("--data", nargs=2, metavar=("NAME", "PATH"), help="make a link to public data, and run nothing")
    parser.add_argument("--checkout", metavar="DIR", help="make a folder with links to the files of this checkout, and run nothing")
    args = parser.parse_args()
    if args.checkout:
        return checkout(args.checkout)
    if args.data:
        return data(*args.data)
    if args.images:
        return images(args.images[0], args.images[1].split(","), int(args.images[2]))
    pages = args.pages or PAGES
    if not args.list and not (ROOT / "hetero-train").exists():
        sys.exit("docs_commands: there is no ./hetero-train: run make first")
    work = args.root or tempfile.mkdtemp(prefix="docs_commands_")
    Path(work).mkdir(parents=True, exist_ok=True)
    skipped, failed, done = [], [], 0
    try:
        for page in pages:
            found, files, others = blocks(page)
            if args.list:
                for block in found:
                    print(f"{block.place}: {block.skip and 'skip: ' + block.skip or block.text.splitlines()[0]}")
                continue
            folder, programs = folders_for(page, found, files, work)
            for block in found:
                start = time.monotonic()
                result, said = (f"skip: {block.skip}", "") if block.skip else run(block, folder, programs)
                print(f"{block.place}: {result}" + ("" if block.skip else f", {time.monotonic() - start:.1f} s"), flush=True)
                if result == "ok":
                    done += 1
                elif result.startswith("skip: "):
                    skipped.append(f"{block.place}: {result[6:]}")
                else:
                    failed.append(f"{block.place}: {result}")
                    print("\n".join("    " + line for line in (block.text + "\n" + said[-3000:]).splitlines()), flush=True)
            if others:
                print(f"{page}: {others} blocks have no commands")
    finally:
        if not args.root:
            shutil.rmtree(work, ignore_errors=True)
    if args.list:
        return 0
    print(f"\ndocs_commands: {done} blocks ran, {len(failed)} failed, {len(skipped)} did not run")
    for line in skipped:
        print(f"  not run: {line}")
    for page in sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md")):
        if not args.pages and page not in PAGES:
            print(f"  not run: {page}: {len(blocks(page)[0])} blocks without marks")
    for line in failed:
        print(f"  FAILED: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
