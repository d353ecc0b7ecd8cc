#!/usr/bin/env bash
# Measures every row of the table in BENCHMARKS.md again, at one commit, on this machine.
#
#   sudo PYTHON=.venv/bin/python scripts/headlines.sh --write
#
# PYTHON has torch, torchvision and transformers. Balancing under CPU quotas needs root. Other requirements:
# libtcmalloc-minimal4, libturbojpeg0-dev, and a quiet machine: the script measures the CPU time of all other processes, at
# any priority, before and during each part. Above 0.3 CPUs it refuses to start a part, and rejects a part that has ended.
#
# The script runs `make`, then the parts with the most important figures first. Each part has at least three interleaved
# rounds and a limit of its time. `--plan` shows the time of each part; all together take about 55 minutes on two cores, of which
# ten are for the first torch.compile of each model; PyTorch caches its results.
# The result of a part is build/headlines/PART.json, with its commit and a hash of the code that it measures. The same
# command, run again, keeps valid results. --write replaces the rows of the measured parts in BENCHMARKS.md.
#
#   scripts/headlines.sh --check              fails if a figure of the page is stale: the code that it measures changed after its commit
#   scripts/headlines.sh --mark               writes "code changed since" next to stale figures, after which --check accepts them
#   scripts/headlines.sh --allow-load --parts peak,decoding      a trial on a busy machine, marked as not quiet
#
# exit: 0 done; 1 a part failed, or a figure is stale; 2 bad arguments; 130 interrupted
set -euo pipefail
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || { echo "headlines: python3 not found: install it" >&2 && exit 2; }
exec python3 scripts/headlines/main.py "$@"
