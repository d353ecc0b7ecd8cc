#!/usr/bin/env python3
"""Prints the lines that have more than 120 columns, a tab as four, and fails if there are any.

    .ci/columns.py [FILE...]     default: the Go, Python, C++ and CUDA files of git

Strings are not cut, so that one can search for their texts: a line that begins with a string, or whose string contains
the last column, may be longer. So may a link in a comment, and a preformatted line of a Go comment, after a tab.
"""

import os
import re
import subprocess
import sys

LIMIT = 120
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|\'(?:[^\'\\]|\\.)*\'|https?://\S+')
REST = 30  # most characters after the end of a raw string
CODE = ("*.go", "*.py", "*.cc", "*.h", "*.cu", "*.cuh")


def columns(text):
    return len(text.expandtabs(4))


def may_be_long(line):
    """Says whether the line begins with a string, or a string contains the last column."""
    text = line.lstrip()
    if text.startswith("//\t") or STRING.match(text):
        return True
    return any(
        columns(line[: string.start()]) < LIMIT < columns(line[: string.end()]) + 3
        and columns(line[string.end() :]) <= REST
        for string in STRING.finditer(line)
    )


def inside_text(source, suffix):
    """Returns the numbers of the lines that begin or end inside a text of several lines."""
    texts = {"go": r"`[^`]*`", "py": r'"""(?:.|\n)*?"""'}
    quotes = re.compile(texts.get(suffix, r'R"\((?:.|\n)*?\)"'))
    # Quotes in comments and in strings of one line are not the start of a text.
    plain = re.sub(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'',
                   lambda m: " " * len(m.group()), source) if suffix == "go" else source
    lines = set()
    for text in quotes.finditer(plain):
        first = source.count("\n", 0, text.start())
        more = text.group().count("\n")
        if more:
            lines.update(range(first, first + more + 1))
    return lines


def long_lines(name):
    with open(name, encoding="utf-8") as file:
        source = file.read()
    if "DO NOT EDIT" in source[:1000]:
        return
    lines = source.split("\n")
    if all(columns(line) <= LIMIT for line in lines):
        return
    skipped = inside_text(source, name.rsplit(".", 1)[1])
    for number, line in enumerate(lines):
        if columns(line) > LIMIT and number not in skipped and not may_be_long(line):
            yield number + 1, line


def main():
    files = subprocess.check_output(["git", "ls-files", "--cached", "--others", "--exclude-standard", *CODE], text=True)
    names = sys.argv[1:] or [name for name in files.splitlines() if os.path.exists(name)]
    found = 0
    for name in names:
        for number, line in long_lines(name):
            found += 1
            print(f"{name}:{number}: {columns(line)} columns, want at most {LIMIT}: {line.strip()[:60]}…")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
