"""The table of BENCHMARKS.md: its rows, and the check that neither they nor the other figures of the page are stale."""

import os
import re
import subprocess

from parts import PARTS

PAGE = "BENCHMARKS.md"
BEGIN, END = "<!-- headlines: scripts/headlines.sh writes these rows -->", "<!-- end of headlines -->"
HEADER = "| Measurement | Ours | Peer | Ratio (spread) | Fraction of the peak | Part | Measured |\n|---|---|---|---|---|---|---|\n"
CHANGED = "code changed since"
ON = "Machine of the rows that name none: "
SIMULATED = {p.name for p in PARTS if p.simulated}  # their rows are the same on every machine
ROW = re.compile(r"\|.*\| `(?P<part>\w+)` \| measured at (?P<commit>[0-9a-f]{7,40})(?P<rest>[^|]*)\|$")
PATHS = {p.name: p.paths for p in PARTS}
# Figures of the page outside the rows: the paths of their code, and how to measure them again. Each has one line with
# `measured at COMMIT, DATE (code of NAME)`.
TEXTS = {
    "five_figures": (PATHS["whole_runs"], "sudo scripts/five_figures.sh --into BENCHMARKS.md"),
    "h100": ([*PATHS["resnet224"], "cuda"], "docs/benchmarks/gpu.md"),
    "amx": (PATHS["resnet32"], "docs/benchmarks/cpu.md"),
}
TEXT = re.compile(r"[Mm]easured at (?P<commit>[0-9a-f]{7,40})(?P<rest>[^(]*)\(code of `(?P<part>\w+)`\)")


def git(*args):
    return subprocess.run(["git", *args], capture_output=True, text=True)


def code(paths):
    """Pathspecs of the code in paths: without tests, pages, and files of platforms on which no row is measured."""
    left_out = ["*_test.go", "testdata/**", "*.md", "doc.go", "*_windows.go", "*_darwin.go", "*_other.go",
                "unavailable.go", "*_arm64.*", "*_neon.*"]
    return [*paths, *(f":(exclude,glob)**/{name}" for name in left_out)]


# Strings, characters and comments of Go, C and C++.
LITERAL = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|`[^`]*`|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
DIRECTIVES = ("//go:", "//export ")  # comments that are code
C_CODE = 'import "C"\n'  # the comment before this line is code


def essence(name, text):
    """The lines of a source file without comments."""
    if not name.endswith((".go", ".c", ".cc", ".h", ".cu", ".cuh")):
        return [text]
    head, found, text = text.rpartition(C_CODE)

    def bare(match):
        comment = match[0].startswith(("//", "/*")) and not match[0].startswith(DIRECTIVES)
        return "" if comment else match[0]

    return [head, found, *filter(None, map(str.rstrip, LITERAL.sub(bare, text).split("\n")))]


def changed_files(commit, paths):
    """The files of the code in paths that differ from those at commit, in more than comments."""
    names = git("diff", "--name-only", commit, "--", *code(paths)).stdout.split("\n")[:-1]
    old = subprocess.run(["git", "cat-file", "--batch"], input="".join(f"{commit}:{name}\n" for name in names).encode(),
                         capture_output=True).stdout
    changed = []
    for name in names:
        head, _, old = old.partition(b"\n")
        if head.endswith(b" missing") or not os.path.exists(name):  # the file is new, or is gone
            changed.append(name)
        if not head.endswith(b" missing"):
            size = int(head.split()[-1])
            before, old = old[:size], old[size + 1:]
            if os.path.exists(name):
                with open(name, errors="replace") as f:
                    if essence(name, before.decode(errors="replace")) != essence(name, f.read()):
                        changed.append(name)
    return changed


def line(row, name, result):
    """A line of the table."""
    ratio = "" if row["ratio"] is None else f"**{row['ratio']:.2f}** "
    if row["low"] is not None:
        ratio += f"({row['low']:,.2f} to {row['high']:,.2f})" if row[
            "ratio"] is not None else f"({row['low']:,.0f} to {row['high']:,.0f})"
    share = "" if row["share"] is None else f"{100 * row['share']:.0f} %"
    quiet = ", **a trial of one round**" if result["trial"] else "" if result[
        "quiet"] else f", **not quiet** (other processes: {result['load']:.2f} CPUs)"
    if name in SIMULATED:
        quiet += ", simulated"
    cells = [row["what"], row["ours"], row["peer"], ratio.strip(), share, f"`{name}`",
             f"measured at {result['commit']}, {result['date']}{quiet}"]
    return "| " + " | ".join(cells) + " |"


def split(text):
    """The text before the rows, the rows, the default machine of the rows, and the text behind the rows."""
    head, begin, rest = text.partition(BEGIN + "\n")
    body, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"headlines: {PAGE} has no lines {BEGIN!r} and {END!r}")
    lines = body.splitlines()
    rows = [text for text in lines if text.startswith("| ") and not text.startswith("| Measurement")]
    machine = next((text.removeprefix(ON).removesuffix(".") for text in lines if text.startswith(ON)), "")
    return head + begin, rows, machine, end + tail


def faults(mark=False):
    """The faults of the figures, one text for each. If mark is set, stale figures get a mark."""
    with open(PAGE) as f:
        head, rows, machine, tail = split(f.read())
    out = []

    def judge(text, found, what, paths, again):
        """Returns the text of a row or a line, which it marks if mark is set and the text is stale."""
        commit = found["commit"]
        if git("merge-base", "--is-ancestor", commit, "HEAD").returncode != 0:
            out.append(f"{what}: commit {commit} is not an ancestor of HEAD: measure again with {again}")
        elif CHANGED not in found["rest"]:
            changed = changed_files(commit, paths)
            if changed and mark:
                return text.replace(f"easured at {commit}", f"easured at {commit}, {CHANGED}", 1)
            if changed:
                out.append(f"{what}: stale: {len(changed)} files changed since {commit} in more than comments, such as {changed[0]}: run scripts/headlines.sh --mark, or measure again with {again}")
        return text

    for i, text in enumerate(rows):
        found, what = ROW.match(text), text.split("|")[1].strip()
        if found and found["part"] in PATHS:
            part = found["part"]
            rows[i] = judge(text, found, what, PATHS[part], f"scripts/headlines.sh --parts {part} --write")
        else:
            out.append(f"{what}: the row names no part and no commit: want `PART` | measured at COMMIT")
    lines = tail.split("\n")
    at = {found["part"]: i for i, text in enumerate(lines) for found in [TEXT.search(text)] if found}
    for name, (paths, again) in TEXTS.items():
        if name in at:
            i = at[name]
            lines[i] = judge(lines[i], TEXT.search(lines[i]), name, paths, again)
        else:
            out.append(f"{name}: no line names the commit of these figures: want 'measured at COMMIT, DATE (code of `{name}`)'")
    if mark:
        write(head, rows, machine, "\n".join(lines))
    return out


def write(head, rows, machine, tail):
    about = f"{ON}{machine}.\n\n" if machine else ""
    with open(PAGE, "w") as f:
        f.write(head + "\n" + HEADER + "".join(text + "\n" for text in rows) + "\n" + about + tail)


def replace(new, machine):
    """Replaces the rows of the measured parts. new has the lines of each part, by name."""
    with open(PAGE) as f:
        head, rows, before, tail = split(f.read())
    old = {}
    for text in rows:
        found = ROW.match(text)
        old.setdefault(found["part"] if found else "", []).append(text)
    ordered = [text for p in PARTS for text in new.get(p.name, old.get(p.name, []))]
    if before and SIMULATED.issuperset(new):
        machine = before
    kept = [name for name, of in old.items() if name not in new and name not in SIMULATED
            and any(", machine " not in text for text in of)]
    if before and before.split(";")[0] != machine.split(";")[0] and kept:  # measured limits follow the semicolon
        raise SystemExit(f"headlines: the rows of {', '.join(kept)} were measured on another machine ({before}): measure these parts, too")
    write(head, ordered, machine, tail)
