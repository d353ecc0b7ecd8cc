#!/usr/bin/env python3
"""Prints the results of machines.sh as a table of Markdown. machines.sh calls it.

    scripts/machines_table.py RESULTS PAGE [--write]

RESULTS has one line per row that this checkout has run, with tabs between its fields (FIELDS). Rows of the table in PAGE
that this checkout has not run stay in the table, with their commit and day. --write replaces the table in PAGE.
"""
import sys

FIELDS = ["row", "seconds", "megabytes", "training", "loss", "commit", "day", "cores", "cpu"]
SYSTEMS = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13", "sid": "Debian sid"}
USERS = {"root": "root", "user": "ordinary user"}
BEGIN, END = "<!-- machines -->\n", "<!-- end of machines -->\n"
HEAD = ["System", "User", "From", "Compiler", "Installation, s", "CPU time of the installation, s", "Installation, MB",
        "Training, s", "Loss", "Commit", "Day", "Cores"]


def read_results(path):
    """Returns the cells of each row that this checkout has run, by the first four cells."""
    rows = {}
    with open(path) as file:
        for line in file:
            values = line.rstrip("\n").split("\t")
            if len(values) != len(FIELDS):
                sys.exit(f"machines_table: {path}: got {len(values)} fields, want {len(FIELDS)}: {line.rstrip()}")
            of = dict(zip(FIELDS, values))
            system, user, source, compiler = of["row"].split("/")
            key = (SYSTEMS[system], USERS[user], source, "" if compiler == "none" else compiler)
            rows[key] = [of["seconds"], of["cpu"], of["megabytes"], of["training"], f"{float(of['loss']):.6f}",
                         of["commit"].split("+g")[-1], of["day"], of["cores"]]
    return rows


def split_page(path):
    """Returns the text before the table, the lines of the table, and the text after it."""
    with open(path) as file:
        text = file.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"machines_table: {path}: want one line {BEGIN.strip()} and one line {END.strip()}")
    before, rest = text.split(BEGIN)
    table, after = rest.split(END)
    return before + BEGIN, table.splitlines(), END + after


def read_table(path, lines):
    """Returns the cells of each row of the table of a page, by the first four cells."""
    rows = {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| Debian"):
            if len(cells) != len(HEAD):
                sys.exit(f"machines_table: {path}: got {len(cells)} columns, want {len(HEAD)}: {line}")
            rows[tuple(cells[:4])] = cells[4:]
    return rows


def line(cells):
    return "| " + " | ".join(cells) + " |\n"


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    if len(arguments) != 2:
        sys.exit(f"machines_table: got {sys.argv[1:]}, want RESULTS PAGE [--write]")
    results, page = arguments
    before, lines, after = split_page(page)
    rows = read_table(page, lines)
    rows.update(read_results(results))
    order = list(SYSTEMS.values())
    table = line(HEAD) + "|---" * len(HEAD) + "|\n"
    for key in sorted(rows, key=lambda key: (order.index(key[0]), key[1] != "root", key[2:])):
        table += line([*key, *rows[key]])
    print(table, end="")
    if "--write" in sys.argv:
        with open(page, "w") as file:
            file.write(before + table + after)


if __name__ == "__main__":
    main()
