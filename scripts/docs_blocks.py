"""Finds the commands of pages and of the program's help, with the marks that change how they run (docs_commands.py)."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"<!-- docs: (\w+) ?(.*?) ?-->")
MARKS = ("skip", "except", "needs", "python", "file", "add", "replace", "before", "exit", "seconds", "stop")
PROGRAMS = r"""kill|jq|(\./|/\S+/)?hetero-train|\./\w+|make|go|git|sudo|source|\.|export|for|while|if|cd|cp|mkdir|printf|ssh|taskset|python3|pip|curl|tensorboard
|mlflow|promtool|prometheus|kubectl|torchrun|mpirun|mpiexec|srun|sbatch|docker|podman|tar|wget|openssl|module|wsl|nohup|apt-get|unshare|strace|truncate|hf
|echo|cat|\.venv/\S+|scripts/\S+|\.ci/\S+|third_party/\S+|build/\S+|deploy/\S+|aws|\(umask|gzip|\S+/bin/\S+"""
COMMAND = re.compile(r"^([A-Z_][A-Z0-9_]*=(\"[^\"]*\"|'[^']*'|\$\([^)]*\)|\S*)\s+)*(" + PROGRAMS.replace("\n", "") +
                     r")(\s|$)")


class Block:
    """The commands of a fenced block, or an example of the help."""

    def __init__(self, page, line, text, marks):
        self.page, self.line, self.written = page, line, text
        of = lambda name: [value for key, value in marks if key == name]
        self.skip = (of("skip") or [""])[0]
        self.needs = " ".join(of("needs")).split()
        self.python = " ".join(of("python")).split()
        self.add = " ".join(of("add"))
        self.before = of("before")
        self.exit = int((of("exit") or ["0"])[0])
        self.seconds = float((of("seconds") or ["300"])[0])
        self.stop = float((of("stop") or ["0"])[0])
        unknown = [key for key, _ in marks if key not in MARKS]
        if unknown:
            sys.exit(f"docs_commands: {self.place}: unknown mark {unknown[0]}, want one of {', '.join(MARKS)}")
        self.text = text
        for value in of("replace"):
            old, new = self.pair("replace", value)
            self.text = self.text.replace(old, new)
        self.excepted = []
        for value in of("except"):
            part, reason = self.pair("except", value)
            kept = [line for line in self.lines() if part not in line]
            self.excepted.append((part, reason))
            self.text = "\n".join(kept)
        if self.excepted and not self.runs():
            self.skip = self.skip or "; ".join(reason for _, reason in self.excepted)

    def pair(self, mark, value):
        """Splits the value of a mark with two parts. The first part must be in the block."""
        first, arrow, second = value.partition(" =>")
        if not arrow or first not in self.text:
            sys.exit(f"docs_commands: {self.place}: {mark}: got {value!r}, want A => B, where A is a text of the block")
        return first, second.strip()

    def lines(self):
        """Returns the lines, with continued lines as one."""
        return [line.replace("\0", "\n") for line in self.text.replace("\\\n", "\\\0").split("\n")]

    def runs(self):
        """Returns the lines that are commands."""
        return [line for line in self.lines() if line.strip() and not line.lstrip().startswith("#")]

    @property
    def place(self):
        return f"{self.page}:{self.line}" if self.line else self.page + ": " + self.written


def pages():
    """Returns the pages with commands for users and developers."""
    found = [ROOT / name for name in ("README.md", "BENCHMARKS.md", "CONTRIBUTING.md")]
    found += sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "deploy").rglob("*.md"))
    return [str(path.relative_to(ROOT)) for path in found]


def blocks(page):
    """Returns the blocks of commands of a page, the texts of files, and the number of other blocks without a
    language."""
    found, files, others, marks, fence, start, language = [], {}, 0, [], None, 0, ""
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if fence is not None:
            if line.strip() != "```":
                fence.append(line)
                continue
            first = next((text for text in fence if text.strip() and not text.startswith("#")), "")
            assigns = re.match(r"^[A-Z]+=\"", first) and any(COMMAND.match(text) for text in fence)
            text, name = "\n".join(fence), next((value for key, value in marks if key == "file"), "")
            if name:
                files[name] = text + "\n"
            elif language == "python" and marks:
                found.append(Block(page, start, f"python3 - <<'END_OF_BLOCK'\n{text}\nEND_OF_BLOCK", marks))
            elif language in ("sh", "bash") or language == "" and (COMMAND.match(first) or assigns):
                found.append(Block(page, start, text, marks))
            elif marks:
                sys.exit(f"docs_commands: {page}:{start}: a mark, but no known command")
            elif language == "":
                others += 1
            fence, marks = None, []
        elif line.startswith("```"):
            fence, start, language = [], number, line[3:].strip()
        elif MARK.match(line):
            marks.append(MARK.match(line).groups())
        elif line.strip():
            if marks:
                sys.exit(f"docs_commands: {page}:{number}: a mark without a block after it")
    return found, files, others
