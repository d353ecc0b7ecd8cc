#!/usr/bin/env bash
# Compares plain DistributedDataParallel with the policies of hetero-train, on ranks with CPU quotas that compute with
# PyTorch. Prints the throughput of each model and mode: median and range over several runs.
#
#   sudo scripts/pytorch_benchmark.sh --cpu 1.0,0.5,0.25 --python PYTHON
#
# Each round runs all modes in turn, so a slow phase of the machine affects all modes. The program must be built.
# exit: 0 measured; 1 a run failed; 2 bad arguments
set -euo pipefail
cd "$(dirname "$0")/.."

cpus=1.0,0.5,0.25 python=python3 rounds=3 models="resnet18 gpt2" modes="ddp none proportional dynamic hybrid" steps=120
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }
fail() { echo "pytorch_benchmark: $1" >&2 && exit 2; }
while (($#)); do
	[[ $1 == -h || $1 == --help ]] && usage && exit 0
	(($# > 1)) || fail "$1: want a value"
	case $1 in
	--cpu) cpus=$2 ;;
	--python) python=$2 ;;
	--rounds) rounds=$2 ;;
	--models) models=$2 ;;
	--modes) modes=$2 ;;
	--steps) steps=$2 ;;
	*) fail "unknown option $1; want --cpu, --python, --rounds, --models, --modes or --steps" ;;
	esac
	shift 2
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "--rounds: got '$rounds', want a whole number from 1"
[[ $steps =~ ^[1-9][0-9]*$ ]] && ((steps >= 20)) || fail "--steps: got '$steps', want a whole number from 20"
[[ -n ${modes// /} && -n ${models// /} ]] || fail "--modes and --models: got '$modes' and '$models', want at least one of each"
for mode in $modes; do
	[[ " ddp none proportional dynamic hybrid " == *" $mode "* ]] || fail "--modes: got '$mode', want ddp, none, proportional, dynamic or hybrid"
done
for model in $models; do
	[[ " resnet18 gpt2 " == *" $model "* ]] || fail "--models: got '$model', want resnet18 or gpt2"
done
command -v "$python" >/dev/null || fail "--python: there is no program $python"
results=$(mktemp)
trap 'rm -f "$results"' EXIT
echo "ranks with $cpus CPUs, $(nproc) CPUs in all, load $(cut -d' ' -f1 /proc/loadavg), $(date -u +%F)"
for ((round = 1; round <= rounds; round++)); do
	for model in $models; do
		for mode in $modes; do
			HETERO_TRAIN=${HETERO_TRAIN:-$PWD/hetero-train} scripts/lab.sh --cpu "$cpus" -- env OMP_NUM_THREADS=1 "$python" scripts/pytorch_benchmark.py --model "$model" --mode "$mode" \
				--steps "$steps" --warm-up $((steps / 2)) | tee >(cat >&2) | grep '^{' >>"$results"
		done
	done
done
"$python" - "$results" <<'PYTHON'
import collections, json, statistics, sys
runs = collections.defaultdict(list)
for line in open(sys.argv[1]):
    r = json.loads(line)
    runs[r["model"], r["mode"]].append(r)
print("| Model | Mode | samples/s, median (range) | times DDP | of the oracle |\n|---|---|---|---|---|")
for (model, mode), all in runs.items():
    speeds = [r["samples_per_second"] for r in all]
    base = [r["samples_per_second"] for r in runs.get((model, "ddp"), [])]
    times = f"{statistics.median(speeds) / statistics.median(base):.2f}" if base else ""
    oracle = [r["share_of_oracle"] for r in all if r["share_of_oracle"] is not None]
    print(f"| {model} | {mode} | {statistics.median(speeds):.1f} ({min(speeds):.1f} to {max(speeds):.1f}) | {times} | {100 * statistics.median(oracle):.1f} % |" if oracle else
          f"| {model} | {mode} | {statistics.median(speeds):.1f} ({min(speeds):.1f} to {max(speeds):.1f}) | {times} | |")
PYTHON
