"""Checks that programs, commands, flags, keys and files of commands that do not run exist (docs_commands.py)."""
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

from docs_blocks import ROOT

PREFIXES = {"sudo": 0, "env": 0, "do": 0, "then": 0, "nohup": 0, "exec": 0, "time": 0, "/usr/bin/time": 2, "taskset": 2}


def commands(text):
    """Splits a block into commands, each a list of words."""
    for line in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#\s.*", "", line)
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        command = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";|&()"):
                if command:
                    yield command
                command = []
            elif not set(word) <= set("<>"):
                command.append(word)


def faults(text):
    """Returns what the commands of a block name that does not exist."""
    try:
        return [fault for command in commands(text) for fault in of_command(command)]
    except ValueError as err:
        return [f"cannot be read as a shell command: {err}"]


def of_command(words):
    words = list(words)
    while words and (re.match(r"^[A-Z_][A-Z0-9_]*=", words[0]) or words[0] in PREFIXES):
        del words[: 1 + PREFIXES.get(words[0], 0)]
    if not words:
        return []
    direct = words[0] not in ("$PYTHON", "python3", ".venv/bin/python", "bash")
    if not direct and len(words) > 1:
        words = words[1:]
    program, rest = words[0], words[1:]
    found = files(words)
    if Path(program).name == "hetero-train" and not program.startswith("third_party"):
        return found + of_program(rest)
    if program in ("go", "kubectl"):  # kubectl names objects of a cluster, which are not programs
        return found
    if program == "make":
        makefile = (ROOT / "Makefile").read_text()
        return found + [f"make {word}: no such target" for word in rest if not re.match(r"^(-|\w+=)", word)
                        and not re.search(rf"^{re.escape(word)}:", makefile, re.M)]
    if "--" in rest:  # scripts/lab.sh … -- COMMAND
        found += of_command(rest[rest.index("--") + 1 :])
        rest = rest[: rest.index("--")]
    else:  # torchrun … hetero-train …
        inner = [i for i, word in enumerate(rest) if Path(word).name == "hetero-train"]
        if inner:
            return found + of_command(rest[inner[0] :])
    if program.startswith(("scripts/", ".ci/", "third_party/")) and (ROOT / program).is_file():
        source = (ROOT / program).read_text()
        if direct and not (ROOT / program).stat().st_mode & 0o100:
            found.append(f"{program}: not executable")
        found += [f"{program}: no flag {flag}" for flag in flags(rest)
                  if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", source)]
    return found


def flags(words):
    return [word.split("=")[0] for word in words if re.match(r"^--?[A-Za-z]", word)]


def files(words):
    """Returns the files of the checkout that do not exist."""
    named = [re.sub(r"^\./", "", word) for word in words]
    return [f"{name}: no such file" for name in named
            if re.match(r"^(configs|scripts|deploy|examples|third_party|\.ci|docs)/[\w./-]+$", name)
            and not (ROOT / name).exists()]


@cache
def help_of(*words):
    return subprocess.run([ROOT / "hetero-train", *words, "--help"], capture_output=True, text=True).stdout


@cache
def keys():
    return set(re.findall(r"^(?:\| `(\w+)`|## \[([\w.]+)\])", (ROOT / "configs/README.md").read_text(), re.M))


def of_program(rest):
    words = []
    for word in rest:
        if not re.search(rf"^  {re.escape(word)} ",
                         help_of(*words).partition("Available Commands:")[2].partition("\n\n")[0], re.M):
            break
        words.append(word)
    text = help_of(*words)
    if "Available Commands:" in text and words and len(rest) > len(words) and not rest[len(words)].startswith("-"):
        return [f"hetero-train {' '.join(words)}: no command {rest[len(words)]}"]
    listed = text.partition("Flags:")[2]
    found = [f"hetero-train {' '.join(words)}: no flag {flag}" for flag in flags(rest)
             if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", listed)]
    tables = {table for _, table in keys()}
    for at, word in enumerate(rest[:-1]):
        table, dot, name = rest[at + 1].partition("=")[0].rpartition(".")
        if word == "--set" and (table not in tables or (name, "") not in keys()):
            found.append(f"--set {table}{dot}{name}: no such key")
    return found
