#!/usr/bin/env bash
# Measures the gain from overlapping communication with the backward pass. Two ranks train with and without overlap.
# They are in two network namespaces, which a link of limited rate connects.
#
#   make && sudo scripts/overlap.sh --rate 1gbit
#
# stdout: a table with the communication time of a step, the part of it that the backward pass hides, and this part as a
# fraction of the possible maximum, min(communication, backward). The script needs root (ip netns, tc) and an idle
# machine.
#
# exit: 0 measured; 1 a run failed; 2 bad arguments, or a tool is missing
set -euo pipefail

usage() {
	cat <<-'TEXT'
		usage: scripts/overlap.sh [options]
		  --rate RATE          of the link, in the form of tc             (1gbit)
		  --model NAME                                                    (resnet50)
		  --image-size PIXELS                                             (224)
		  --batch-size SAMPLES global                                     (32)
		  --precision NAME                                                (f32)
		  --bucket-cap-mb MIB  0: chosen by measurement                  (25)
		  --steps N            the first two do not count                 (10)
		  --binary PATH                                                   (./hetero-train)
	TEXT
}

fail() { # exit code, message
	echo "overlap: $2" >&2
	exit "$1"
}

cd "$(dirname "$0")/.."
rate=1gbit model=resnet50 image=224 batch=32 precision=f32 cap=25 steps=10 binary=./hetero-train
while (($#)); do
	case $1 in
	-h | --help) usage && exit 0 ;;
	esac
	(($# > 1)) || fail 2 "$1: want a value"
	case $1 in
	--rate) rate=$2 ;;
	--model) model=$2 ;;
	--image-size) image=$2 ;;
	--batch-size) batch=$2 ;;
	--precision) precision=$2 ;;
	--bucket-cap-mb) cap=$2 ;;
	--steps) steps=$2 ;;
	--binary) binary=$2 ;;
	*) usage >&2 && fail 2 "unknown option: got '$1'" ;;
	esac
	shift 2
done
((steps > 3)) || fail 2 "--steps: got $steps, want at least 4"
[[ -x $binary ]] || fail 2 "$binary not found: run make first"
[[ $(id -u) == 0 ]] || fail 2 "network namespaces need root"
for tool in ip tc python3; do
	command -v "$tool" >/dev/null || fail 2 "$tool not found: install iproute2 and python3"
done

scratch=$(mktemp -d)
id=$$
cleanup() {
	ip netns del "ht$id-a" 2>/dev/null || true
	ip netns del "ht$id-b" 2>/dev/null || true
	rm -rf "$scratch"
}
trap cleanup EXIT

for end in a b; do
	ip netns add "ht$id-$end"
	ip -n "ht$id-$end" link set lo up
done
ip link add "h$id-a" netns "ht$id-a" type veth peer name "h$id-b" netns "ht$id-b"
for end in a:1 b:2; do
	ip -n "ht$id-${end%:*}" address add "10.87.0.${end#*:}/24" dev "h$id-${end%:*}"
	ip -n "ht$id-${end%:*}" link set "h$id-${end%:*}" up
	ip netns exec "ht$id-${end%:*}" tc qdisc add dev "h$id-${end%:*}" root tbf rate "$rate" burst 512kb latency 100ms
done

export WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=10.87.0.1 MASTER_PORT=29555 HETERO_TOKEN=$RANDOM$RANDOM$RANDOM$RANDOM
threads=$((($(nproc) + 1) / 2))
for overlap in true false; do
	arguments=(train --model "$model" --dataset synthetic_image --num-samples "$((4 * batch))" --output-dir "$scratch/$overlap" --experiment-name run
		--set "data.batch_size=$batch" --set "data.image_size=$image" --set "train.precision=$precision" --set "train.steps=$steps" --set "train.epochs=1000"
		--set train.eval_interval=0 --set "parallel.overlap=$overlap" --set "parallel.bucket_cap_mb=$cap" --set "device.threads=$threads" --set profile.enabled=true --set model.num_classes=1000
		--set data.workers=1)
	RANK=1 ip netns exec "ht$id-b" "$binary" "${arguments[@]}" >"$scratch/log" 2>&1 &
	other=$!
	RANK=0 ip netns exec "ht$id-a" "$binary" "${arguments[@]}" >&2 || fail 1 "rank 0 failed: $(tail -n 3 "$scratch/log")"
	wait "$other" || fail 1 "rank 1 failed: $(tail -n 3 "$scratch/log")"
done

python3 - "$scratch" "$rate" "$model $image, batch $batch, $precision, buckets of $cap MiB" <<'PYTHON'
import json
import statistics
import sys

scratch, rate, what = sys.argv[1:]
print(f"{what}, two ranks, {rate}; seconds of a step, medians over steps and ranks")
print("| overlap | step | backward | communication | of it hidden | of what could be hidden | buckets |")
print("|---|---|---|---|---|---|---|")
for overlap in "true", "false":
    rows = []
    for rank in range(2):
        with open(f"{scratch}/{overlap}/run/logs/rank_{rank}_metrics.json") as f:
            rows += json.load(f)[2:]
    median = lambda key: statistics.median(r[key] for r in rows)
    exposed, hidden, backward = median("communication_time"), median("communication_hidden_time"), median("backward_time")
    could = min(exposed + hidden, backward)
    print(f"| {overlap} | {median('iteration_time'):.3f} | {backward:.3f} | {exposed + hidden:.3f} | {hidden:.3f} | {100 * hidden / could:.0f} % | {rows[0]['communication_buckets']} |")
PYTHON
