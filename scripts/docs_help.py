"""The examples of the program's help, with their marks (docs_commands.py)."""
import re
import subprocess
import sys

from docs_blocks import ROOT, Block

# Marks of the examples that begin with a text, without the name of the program.
MARKED = {
}


def lines_of(text):
    """Returns the lines of the examples of a help. It joins continued lines, and removes explanations: they follow two spaces."""
    part = re.split(r"^(?:Available Commands|Flags|Global Flags):$", text.partition("Examples:\n")[2], maxsplit=1, flags=re.M)[0]
    lines = re.sub(r"\\\n\s*", "", part).splitlines()
    return [line.strip().partition("  ")[0] for line in lines if re.match(r"^  \S", line)]


def commands(*words):
    """Yields each command with the lines of its examples, the commands below it first."""
    text = subprocess.run([ROOT / "hetero-train", *words, "--help"], capture_output=True, text=True, check=True).stdout
    below = text.partition("Available Commands:\n")[2].partition("\n\n")[0]
    for line in below.splitlines():
        if line.split()[0] != "help":
            yield from commands(*words, line.split()[0])
    yield " ".join(words), lines_of(text)


def examples(only):
    """Yields the name of each command, or of one command, with its examples; a family of commands does not repeat theirs."""
    seen, used = set(), set()
    for name, lines in commands():
        lines = [line for line in lines if line not in seen]
        seen.update(lines)
        if not lines or only not in ("", name):
            continue
        found = []
        for line in lines:
            marks = []
            for prefix, values in MARKED.items():
                if line.replace("hetero-train ", "", 1).startswith(prefix):
                    used.add(prefix)
                    marks += [tuple(value.split(" ", 1)) for value in values]
            found.append(Block(f"help {name}".strip(), 0, line, marks))
        yield f"help {name}".strip(), found
    if unused := set(MARKED) - used - ({*MARKED} if only else set()):
        sys.exit(f"docs_commands: docs_help.py: no example begins with {sorted(unused)[0]!r}")
