#!/usr/bin/env bash
# Measures two effects on the speed of several ranks: micro-batches and bucket sizes chosen by the program, and the update
# of all parameters in one pass.
#
#   make && sudo scripts/tuning_effects.sh
#
# Part 1: two ranks with a network link each train GPT-2 blocks in interleaved rounds, with fixed numbers of
# micro-batches and bucket sizes, and with train.grad_accumulation = 0 and parallel.bucket_cap_mb = 0. Part 2: `go test
# ./engine/optim -bench Update` measures the CPU time of two kinds of updates of such blocks: one pass over flat
# buffers, and separate operations for each parameter. Only the benchmark contains the second kind. --skip-update leaves
# part 2 out.
#
# stdout: two tables in Markdown, with the median over the rounds and, in parentheses, the fastest and the slowest round.
# The script needs root (scripts/lab.sh --link) and an idle machine.
#
# exit: 0 measured; 1 a run failed; 2 bad arguments, or a tool is missing
set -euo pipefail

usage() {
	cat <<-'TEXT'
		usage: scripts/tuning_effects.sh [options]
		  --rate RATE          of each rank's link, in the form of tc      (200mbit)
		  --cpu QUOTA          CPUs of each rank                           (0.9)
		  --width N            channels of the model                       (256)
		  --layers N           layers of the model                         (6)
		  --batch-size SAMPLES global                                      (16)
		  --steps N            of each run; the first three do not count   (8)
		  --rounds N           every variant runs once in each round       (3)
		  --skip-update        leave part 2 out
		  --binary PATH                                                    (./hetero-train)
	TEXT
}

fail() { # exit code, message
	echo "tuning_effects: $2" >&2
	exit "$1"
}

cd "$(dirname "$0")/.."
rate=200mbit cpu=0.9 width=256 layers=6 batch=16 steps=8 rounds=3 update=yes binary=./hetero-train
while (($#)); do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--skip-update) update=no && shift && continue ;;
	esac
	(($# > 1)) || fail 2 "$1: want a value"
	case $1 in
	--rate) rate=$2 ;;
	--cpu) cpu=$2 ;;
	--width) width=$2 ;;
	--layers) layers=$2 ;;
	--batch-size) batch=$2 ;;
	--steps) steps=$2 ;;
	--rounds) rounds=$2 ;;
	--binary) binary=$2 ;;
	*) usage >&2 && fail 2 "unknown option: got '$1'" ;;
	esac
	shift 2
done
((steps > 4)) || fail 2 "--steps: got $steps, want at least 5"
((batch % 16 == 0)) || fail 2 "--batch-size: got $batch, want a multiple of 16, because a variant has 8 micro-batches of 2 ranks"
[[ -x $binary ]] || fail 2 "$binary not found: run make first"
[[ $(id -u) == 0 ]] || fail 2 "network namespaces need root"
command -v python3 >/dev/null || fail 2 "python3 not found: install it"
[[ $update == no ]] || command -v go >/dev/null || fail 2 "go not found: install it, or use --skip-update"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Each variant consists of the number of micro-batches and the size of a bucket in MiB. PyTorch's defaults are 1
# micro-batch and 25 MiB.
variants=(8:25 8:5 1:25 1:5 1:1 0:0)
export XDG_CACHE_HOME=$scratch/cache # the first round measures, and later rounds use its choice
for round in $(seq "$rounds"); do
	for variant in "${variants[@]}"; do
		echo "round $round of $rounds: micro-batches ${variant%:*}, buckets of ${variant#*:} MiB" >&2
		scripts/lab.sh --cpu "$cpu,$cpu" --link "$rate,$rate" -- "$binary" train --model gpt2 --dataset synthetic_text --output-dir "$scratch/$round-${variant/:/-}" --experiment-name run \
			--set "model.layers=$layers" --set "model.embedding_size=$width" --set model.heads=4 --set model.dropout=0 --set data.vocabulary=256 --set data.sequence_length=32 \
			--set "data.batch_size=$batch" --set "data.num_samples=$((batch * steps))" --set train.precision=f32 --set "train.steps=$steps" --set train.epochs=1000 --set train.eval_interval=0 \
			--set optimizer.name=adamw --set device.kind=cpu --set device.threads=1 --set data.workers=1 --set balance.policy=none --set profile.enabled=true --set profile.at_start=off \
			--set "train.grad_accumulation=${variant%:*}" --set "parallel.bucket_cap_mb=${variant#*:}" --set checkpoint.interval_steps=0 --set checkpoint.interval_seconds=0.0 \
			>"$scratch/log" 2>&1 || fail 1 "a run failed: $(tail -n 3 "$scratch/log")"
		grep -E 'grad_accumulation = 0 selects|bucket_cap_mb = 0 selects' "$scratch/log" >&2 || true
	done
done
python3 - "$scratch" "$rounds" "GPT-2 blocks, width $width, $layers layers, batch $batch, two ranks of $cpu CPUs, links of $rate" "${variants[@]}" <<'PYTHON'
import json
import statistics
import sys

scratch, rounds, what, *variants = sys.argv[1:]
rows = {}
for v in variants:
    medians = []
    for r in range(1, int(rounds) + 1):
        with open(f"{scratch}/{r}-{v.replace(':', '-')}/run/logs/rank_0_metrics.json") as f:
            steps = json.load(f)[3:]
        median = lambda key: 1e3 * statistics.median(s[key] for s in steps)
        medians.append([median(k) for k in ("iteration_time", "communication_time", "optimizer_time")])
    rows[v] = medians
text = lambda values: f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
print(f"{what}; ms, medians over {rounds} rounds\n")
print("| Micro-batches | Buckets | Step | Waiting for gradients | Optimizer | Steps/s relative to the first row |")
print("|---|---|---|---|---|---|")
for v, medians in rows.items():
    micro, cap = v.split(":")
    ratios = [a[0] / b[0] for a, b in zip(rows[variants[0]], medians)]
    step, wait, update = zip(*medians)
    named = ("chosen", "chosen") if v == "0:0" else (micro, cap + " MiB")
    print(f"| {named[0]} | {named[1]} | {text(step)} | {text(wait)} | {text(update)} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")
PYTHON
[[ $update == yes ]] || exit 0
echo
HETERO_REQUIRE=cpu HETERO_LIB_DIR=${HETERO_LIB_DIR:-$PWD/build/lib} go test ./engine/optim -run - -bench Update -benchtime 50x -count "$rounds" >"$scratch/bench" || fail 1 "the benchmark failed: $(tail -n 3 "$scratch/bench")"
python3 - "$scratch/bench" <<'PYTHON'
import collections
import re
import statistics
import sys

times = collections.defaultdict(list)
for line in open(sys.argv[1]):
    for value, name in re.findall(r"([\d.]+) (fused|unfused)-ms", line):
        times[name].append(float(value))
if len(times) != 2:
    sys.exit("tuning_effects: the benchmark printed no times: is the CPU library built?")
text = lambda values: f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
ratios = [a / b for a, b in zip(times["unfused"], times["fused"])]
print("SGD with momentum, all parameters of 12 blocks of width 256 (9.5 million), one thread; CPU time in ms\n")
print("| Update | Time |\n|---|---|")
print(f"| one pass over flat buffers, with the norm of all gradients | {text(times['fused'])} |")
print(f"| one operation at a time for each parameter, without the norm | {text(times['unfused'])} |")
print(f"| ratio | {text(ratios)} |")
PYTHON
