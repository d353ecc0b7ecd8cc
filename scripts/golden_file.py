"""The format of golden runs in engine/models/testdata: JSON with each list of numbers on one line."""

import json


def text(run):
    """Returns the contents of the file for run, a value that json can encode."""
    lines, depth = [], 0
    for line in json.dumps(run, indent=1).split("\n"):
        if depth > 0:
            lines[-1] += line.strip() + (" " if line.endswith(",") else "")
        else:
            lines.append(line)
        depth += line.count("[") - line.count("]")
    return "\n".join(line.rstrip() for line in lines) + "\n"
