#!/usr/bin/env python3
"""Runs go test, prints its usual output, and lists the skipped tests with their reasons.

    .ci/tests.py [--record FILE] go test [FLAGS] PACKAGES

It adds -json to the command. It prints the lines of go test for packages, and the output of packages and tests that fail.
At the end it prints the time of the whole command, the number of skipped tests for each reason, and the slowest packages and
tests. The exit code is that of go test.

    .ci/tests.py --judge ALLOWED FILE...

reads the records that --record wrote. It prints all skipped tests, grouped by reason, and the lines of go test for packages.
It fails if a reason matches no line of ALLOWED: such a line has a regular expression, a tab, and the justification. It also
fails if a line of ALLOWED has no justification. A test that ran in one record and was skipped in another counts as run.
"""

import collections
import json
import pathlib
import re
import resource
import subprocess
import sys
import time


class Tests:
    """Results of go test by package and test."""

    def __init__(self):
        self.lines = {}  # package: lines of go test for it
        self.output = collections.defaultdict(list)  # (package, test): its output
        self.results = {}  # (package, test): pass, fail or skip
        self.failed = []  # (package, test), children first
        self.seconds = {}  # (package, test): elapsed time; test "" is the package

    def add(self, event, show=lambda text: None):
        """Adds an event of go test -json. show prints the text of failures and the lines of packages."""
        package, test = event.get("Package", event.get("ImportPath", "")), event.get("Test", "")
        action = event["Action"]
        if action == "output" and not test:
            text = event["Output"]
            if re.match(r"(ok|FAIL|---|\?) *\t|\t", text):
                self.lines.setdefault(package, []).append(text)
                if not text.startswith("FAIL"):
                    show(text)
            elif text not in ("PASS\n", "FAIL\n"):
                self.output[package, ""].append(text)
        elif action == "output":
            if not re.match(r"=== (RUN|PAUSE|CONT|NAME) ", event["Output"]):
                self.output[package, test].append(event["Output"])
        elif action == "build-output":
            show(event["Output"])
        elif action in ("pass", "fail", "skip"):
            self.seconds[package, test] = event.get("Elapsed", 0)
            self.end(package, test, action, show)

    def end(self, package, test, action, show):
        if test:
            self.results[package, test] = action
        said = self.output[package, test]
        if action == "fail":
            self.failed.append((package, test))
            if test and any(p == package and t.startswith(test + "/") for p, t in self.failed[:-1]):
                said = [line for line in said if not line.startswith("--- FAIL")
                        or line.startswith(f"--- FAIL: {test} ")]
            show("".join(said))
            if not test:  # go test crashed: tests that did not end
                for (p, t), text in self.output.items():
                    if p == package and t and (p, t) not in self.results:
                        show("".join(text))
                show("".join(line for line in self.lines.get(package, ["FAIL\t" + package + "\n"])
                             if line.startswith("FAIL")))
        if action != "skip":
            self.output.pop((package, test), None)

    def skipped(self):
        """Returns {reason: [(package, test)]}. A test whose subtest was skipped for the same reason counts once."""
        reasons = collections.defaultdict(list)
        for key, result in self.results.items():
            if result == "skip":
                reasons[reason("".join(self.output[key]))].append(key)
        return reasons

    def slowest(self, most=15):
        """Returns the packages and the tests without subtests that took longest, as two lists of (seconds, name)."""
        packages, tests = [], []
        for (package, test), seconds in self.seconds.items():
            name = package.split("/", 3)[-1]
            if not test:
                packages.append((seconds, name))
            elif "/" not in test:
                tests.append((seconds, f"{name} {test}"))
        return sorted(packages, reverse=True)[:most], sorted(tests, reverse=True)[:most]


def reason(text):
    """Returns why a test was skipped: the last message of its output."""
    text = re.sub(r"(?m)^ *--- SKIP: .*\n?", "", text)
    found = re.split(r"(?m)^ *[\w.-]+\.go:\d+: ", text)
    return " ".join(found[-1].split()) or "no reason"


def general(why):
    """Returns the reason without numbers and paths, which differ between tests."""
    return re.sub(r"(?<![\w-])/[\w./:-]+", "PATH", re.sub(r"\b\d+\b", "N", why))


def run(args):
    record = None
    if args[0] == "--record":
        path, args = pathlib.Path(args[1]), args[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        record = path.open("w")
    if args[:2] != ["go", "test"]:
        sys.exit(f"tests.py: got the command {args[:2]}, want go test")
    tests, start = Tests(), time.monotonic()
    show = lambda text: print(text, end="", flush=True)
    child = subprocess.Popen(["go", "test", "-json", *args[2:]], stdout=subprocess.PIPE, text=True, errors="replace")
    for line in child.stdout:
        if record:
            record.write(line)
        try:
            event = json.loads(line)
        except ValueError:
            show(line)
            continue
        tests.add(event, show)
    code = child.wait()
    seconds, used = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    reasons = collections.Counter()
    for why, keys in tests.skipped().items():
        reasons[general(why)] += len(keys)
    passed = sum(result == "pass" for result in tests.results.values())
    print(f"tests: {passed} passed, {sum(bool(t) for _, t in tests.failed)} failed, {reasons.total()} skipped")
    for why, count in reasons.most_common():
        print(f"  {count:4} skipped: {why}")
    # The printed CPU time includes compiling. Tests share the CPUs, so the time of each test is elapsed time.
    print(f"time: {seconds:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU time")
    for kind, slowest in zip(("packages", "tests"), tests.slowest()):
        print(f"slowest {kind}:")
        for seconds, name in slowest:
            print(f"  {seconds:6.1f} s  {name}")
    return code


def judge(allowed, files):
    tests, rules, faults = Tests(), [], []
    for number, line in enumerate(pathlib.Path(allowed).read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            pattern, _, why = line.partition("\t")
            rules.append((re.compile(pattern), why.strip()))
            if not why.strip():
                faults.append(f"{allowed}:{number}: want a regular expression, a tab and a justification, got {line!r}")
    runs = []
    for file in files:
        runs.append(Tests())
        for line in open(file):
            if line.startswith("{"):
                runs[-1].add(json.loads(line))
        if not runs[-1].results:
            faults.append(f"{file}: no test ran")
    ran = {key for one in runs for key, result in one.results.items() if result != "skip"}
    skipped = collections.defaultdict(dict)  # justification: {test: reason}
    for one in runs:
        for why, keys in one.skipped().items():
            for key in keys:
                if key in ran:
                    continue
                rule = next((rule for rule in rules if rule[0].search(why)), None)
                if not rule:
                    faults.append(f"{key[0]} {key[1]}: skipped without a justification: {why}")
                skipped[rule[1] if rule else "NOT ALLOWED"][key] = why
    print(f"{sum(map(len, skipped.values()))} tests were skipped in every run:")
    for justification, keys in sorted(skipped.items(), key=lambda item: -len(item[1])):
        print(f"{len(keys)}: {justification}")
        for (package, test), why in sorted(keys.items()):
            print(f"    {package.split('/', 3)[-1]} {test}: {why}")
    for one in runs:
        print("".join(line for lines in one.lines.values() for line in lines if not line.startswith(("?", "\t"))),
              end="")
    for fault in dict.fromkeys(faults):
        print(f"tests.py: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(judge(sys.argv[2], sys.argv[3:]) if sys.argv[1] == "--judge" else run(sys.argv[1:]))
