#!/usr/bin/env bash
# Measures every row of the table in BENCHMARKS.md again, at one commit, on this machine.
#
#   sudo PYTHON=.venv/bin/python scripts/headlines.sh --write
#
# PYTHON needs torch, torchvision and transformers. Balancing under CPU quotas needs root. The machine needs
# libtcmalloc-minimal4 and libturbojpeg0-dev, and must be quiet. Before and during each part, the script measures the
# CPU time of all other processes, at any priority. If they use more than 0.3 CPUs, it does not start the part, or
# rejects its result.
#
# The script runs `make`, then the parts with the most important figures first. Each part has at least three interleaved
# rounds, and a time limit. `--plan` shows the time of each part. All together take about 55 minutes on two cores. Ten
# of these minutes are for the first torch.compile of each model; PyTorch caches its results.
#
# The result of a part is build/headlines/PART.json. It contains the commit, and a hash of the code that the part
# measures. If the same command is repeated, it keeps valid results. --write replaces the rows of the measured parts in
# BENCHMARKS.md.
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
