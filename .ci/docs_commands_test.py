#!/usr/bin/env python3
"""Tests scripts/docs_commands.py on blocks and names of its own. .ci/run runs it."""
import argparse
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
sys.dont_write_bytecode = True
import docs_commands
import docs_help
from docs_blocks import Block


class DocsCommands(unittest.TestCase):
    def test_a_name_without_commands_is_an_error(self):
        docs_help.commands, docs_help.MARKED = lambda: [("bench ops", ["hetero-train bench ops"])], {}
        names = lambda *pages: [name for name, *_ in docs_commands.parts(argparse.Namespace(pages=list(pages)))]
        self.assertEqual(names("help", "bench", "ops"), ["help bench ops"])
        self.assertEqual(names("docs/data.md"), ["docs/data.md"])
        for pages in (["help", "nonsense"], ["docs/nonsense.md"], ["docs/data.md", "docs/nonsense.md"],
                      ["CHANGELOG.md"]):
            with self.subTest(pages), self.assertRaises(SystemExit) as end, contextlib.redirect_stderr(
                    io.StringIO()) as said:
                names(*pages)
            self.assertEqual(end.exception.code, 2)
            self.assertIn(pages[-1], said.getvalue())

    def test_a_server_runs_until_it_is_stopped(self):
        with tempfile.TemporaryDirectory() as work:
            place = docs_commands.Place(work, "page", {}, "empty")
            for text, want in (("exec sleep 600", "ok"), ("# a comment\n\nexec sleep 600", "ok"), ("true", "ended"),
                               ("exec sleep 600\ntrue", "ended"), ("false", "ended"),
                               ("echo no server; exit 77", "skip: no server")):
                for seconds in ("0.5", "60") if want != "ok" else ("0.5",):  # a busy machine may need more than 0.5 s
                    result, _ = place.run(Block("page", 1, text, [("stop", seconds)]))
                    if result.startswith(want):
                        break
                with self.subTest(text):
                    self.assertRegex(result, "^" + want)

    def test_a_block_without_lines_to_run_is_skipped(self):
        block = Block("page", 1, "# on the cluster\nsrun a\n\nsrun b", [("except", "srun => it needs a cluster")])
        self.assertEqual(docs_commands.result_of(block, None), ("skip: it needs a cluster", ""))
        self.assertEqual(Block("page", 1, "srun a\ntrue", [("except", "srun => it needs a cluster")]).skip, "")


if __name__ == "__main__":
    unittest.main()
