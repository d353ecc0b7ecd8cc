#!/usr/bin/env bash
# Compares the speed of `hetero-train bench train` with PyTorch on this machine. Each round runs hetero-train, PyTorch
# eager and PyTorch compiled, one after another. All do the same work: the script fails if model, precision, batch,
# sequence or image size, classes, dropout, optimizer or threads differ between two runs.
#
#   make
#   python3 -m venv .venv && .venv/bin/pip install torch torchvision       once; also: apt-get install libtcmalloc-minimal4
#   PYTHON=.venv/bin/python scripts/compare_pytorch.sh --model resnet50 --image-size 32 --batch-size 128
#   PYTHON=.venv/bin/python scripts/compare_pytorch.sh --model gpt2 --seq-len 256 --batch-size 4    needs transformers, too
#
# stdout: a Markdown table with one row per precision, as in docs/benchmarks/cpu.md. stderr: progress. A JSON file
# contains all times. The ratio of a round is the speed of hetero-train divided by the speed of the faster PyTorch
# mode in this round. A row contains the median and the range over the rounds. If the ratio is above 1, hetero-train
# is faster.
# Run the script on an idle machine. It warns if the machine is busy.
#
# exit: 0 success; 1 a run failed; 2 bad arguments, or a missing requirement
set -euo pipefail

usage() {
	cat <<-'TEXT'
		usage: [PYTHON=python3] scripts/compare_pytorch.sh [options]
		  --model NAME         simple_cnn, resnet18 ... resnet152, gpt2, bert_base  (resnet50)
		  --image-size PIXELS                                          (32)
		  --seq-len TOKENS     of a sample of text; text is without dropout  (256)
		  --batch-size SAMPLES                                         (128)
		  --precision LIST     of f32, bf16, fp16 (on a GPU)           (f32,bf16)
		  --device NAME        cpu or cuda, for both programs           (cpu)
		  --classes N          outputs of a model of images            (1000)
		  --optimizer NAME     of both programs: auto, sgd or adamw; auto: adamw for text, else sgd  (auto)
		  --rounds N                                                   (5)
		  --steps N            timed steps of each run                 (20)
		  --warmup N           steps before the timed ones              (3)
		  --threads N          for both programs                        (all CPUs, or the CPU quota)
		  --ranks N            processes that share the batch; in PyTorch, DistributedDataParallel over Gloo  (1)
		  --skip-slower        after round 1, omit a PyTorch mode that took over 1.15 times as long as the other one
		  --modes LIST         eager,compile or one of them; compile needs a C++ compiler   (eager,compile)
		  --binary PATH        the program                             (./hetero-train)
		  --output FILE        JSON file with all timings              (build/compare_pytorch/DEVICE-MODEL-SIZE-BATCH-RANKS.json)
	TEXT
}

fail() { # exit code, message
	echo "compare_pytorch: $2" >&2
	exit "$1"
}

number() { # option, value: fails unless the value is an integer above 0
	[[ $2 =~ ^[1-9][0-9]*$ ]] || fail 2 "$1: got '$2', want a whole number above 0"
}

members() { # option, value, allowed words: fails unless the value is a comma-separated list of allowed words
	local word
	[[ -n $2 ]] || fail 2 "$1: got an empty list, want a list of: $3"
	for word in ${2//,/ }; do
		[[ " $3 " == *" $word "* ]] || fail 2 "$1: got '$word', want a list of: $3"
	done
}

default_threads() { # the number of CPUs that this process may use, or its CPU quota if that is smaller
	local cpus quota=max period=1
	cpus=$(env -u OMP_NUM_THREADS nproc)
	[[ ! -r /sys/fs/cgroup/cpu.max ]] || read -r quota period </sys/fs/cgroup/cpu.max
	if [[ $quota != max ]] && ((quota < cpus * period)); then
		cpus=$(((quota + period - 1) / period))
	fi
	echo "$cpus"
}

cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
peer=scripts/peers/pytorch_step.py
model=resnet50 image=32 length=256 batch=128 precisions=f32,bf16 classes=1000 rounds=5 steps=20 warmup=3 threads=$(default_threads)
modes=eager,compile binary=./hetero-train output= ranks=1 device=cpu optimizer=auto skip=no

while (($#)); do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--skip-slower) skip=yes && shift && continue ;;
	--model | --image-size | --seq-len | --batch-size | --precision | --device | --classes | --optimizer | --rounds | --steps | --warmup | --threads | --ranks | --modes | --binary | --output)
		(($# > 1)) || fail 2 "$1: want a value" ;;
	*) usage >&2 && fail 2 "unknown option: got '$1'" ;;
	esac
	case $1 in
	--model) model=$2 ;;
	--image-size) number "$1" "$2" && image=$2 ;;
	--seq-len) number "$1" "$2" && length=$2 ;;
	--batch-size) number "$1" "$2" && batch=$2 ;;
	--precision) members "$1" "$2" "f32 bf16 fp16" && precisions=$2 ;;
	--device) members "$1" "$2" "cpu cuda" && device=$2 ;;
	--classes) number "$1" "$2" && classes=$2 ;;
	--optimizer) members "$1" "$2" "auto sgd adamw" && optimizer=$2 ;;
	--rounds) number "$1" "$2" && rounds=$2 ;;
	--steps) number "$1" "$2" && steps=$2 ;;
	--warmup) number "$1" "$2" && warmup=$2 ;;
	--threads) number "$1" "$2" && threads=$2 ;;
	--ranks) number "$1" "$2" && ranks=$2 ;;
	--modes) members "$1" "$2" "eager compile" && modes=$2 ;;
	--binary) binary=$2 ;;
	--output) output=$2 ;;
	esac
	shift 2
done
case $model in
gpt2 | bert_base) size=$length sample=(--seq-len "$length") ours_only=(--dropout 0) library=transformers ;;
*) size=$image sample=(--image-size "$image" --classes "$classes") ours_only=() library=torchvision ;;
esac
[[ $library != transformers ]] || ((ranks == 1)) || fail 2 "--ranks: got $ranks, want 1 for a model of text"
output=${output:-build/compare_pytorch/$device-$model-$size-$batch-$ranks.json}

# Check requirements.
command -v "$PYTHON" >/dev/null || fail 2 "'$PYTHON' not found: set PYTHON to a Python that has torch and $library"
[[ -x $binary ]] || fail 2 "$binary not found: run make first"
"$PYTHON" -c "import torch, $library" 2>/dev/null || fail 2 "$PYTHON has no torch and $library. Install them:
    python3 -m venv .venv && .venv/bin/pip install torch $library
    PYTHON=.venv/bin/python $0"
if [[ $device == cpu && $("$PYTHON" "$peer" --check) != *'"malloc": "tcmalloc"'* ]]; then
	cat >&2 <<-'TEXT'
		*******************************************************************************************************
		WARNING: tcmalloc was not found. Without it PyTorch loses up to a third of its time to page faults, so
		this comparison FAVOURS HETERO-TRAIN and must not be published. Debian: apt-get install libtcmalloc-minimal4
		*******************************************************************************************************
	TEXT
fi
cpus=$(env -u OMP_NUM_THREADS nproc)
((threads <= cpus)) || fail 2 "--threads: got $threads, want at most the $cpus CPUs of this machine"
load=$(cut -d ' ' -f 1 /proc/loadavg)
if [[ $device == cpu ]] && awk "BEGIN { exit !($load > 0.5) }"; then
	echo "WARNING: the machine is busy (load average $load). Other work slows PyTorch down more than hetero-train, up to" >&2
	echo "         ten times, because PyTorch's threads wait for each other at every operation. Do not publish the result" >&2
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
records=$scratch/records.jsonl

# slower PRECISION MODE succeeds if MODE took more than 1.15 times as long as another PyTorch mode in round 1.
slower() {
	"$PYTHON" - "$records" "$1" "$2" <<-'PY'
		import json, sys
		runs = [r for r in map(json.loads, open(sys.argv[1])) if r["precision"] == sys.argv[2] and r["round"] == 1 and r["who"] != "ours"]
		seconds = {r["who"]: r["result"]["step_seconds_median"] for r in runs}
		sys.exit(not seconds[sys.argv[3]] > 1.15 * min(seconds.values()))
	PY
}

# record WHO PRECISION ROUND COMMAND... runs the command. The last line of its output is JSON, which record stores.
record() {
	local who=$1 precision=$2 round=$3 line cap=()
	shift 3
	[[ $who != compile ]] || cap=(timeout 600) # seconds; the first compilation takes minutes
	"${cap[@]}" "$@" >"$scratch/stdout" 2>"$scratch/stderr" || {
		tail -n 20 "$scratch/stderr" >&2
		[[ $who != compile ]] || echo "compare_pytorch: without a C++ compiler, or if the compilation takes over 10 minutes, use --modes eager, and state this next to the figures" >&2
		fail 1 "failed: $*"
	}
	line=$(tail -n 1 "$scratch/stdout")
	[[ $line == {*} ]] || fail 1 "the last line on stdout: got '$line', want JSON: $*"
	echo "{\"who\": \"$who\", \"precision\": \"$precision\", \"round\": $round, \"result\": $line}" >>"$records"
	"$PYTHON" -c 'import json, sys; print("  {:8}{:10.2f} samples/s".format(sys.argv[1], json.loads(sys.argv[2])["samples_per_second"]))' "$who" "$line" >&2
}

settings=(--model "$model" "${sample[@]}" --batch-size "$batch" --steps "$steps" --warmup "$warmup" --threads "$threads" --device "$device" --optimizer "$optimizer")
ours=("$binary" bench train)
if ((ranks > 1)); then
	ours=("$PYTHON" scripts/peers/ranks_step.py --binary "$binary" --ranks "$ranks")
fi
for precision in ${precisions//,/ }; do
	for ((round = 1; round <= rounds; round++)); do
		echo "$model $size, batch $batch, $precision: round $round of $rounds" >&2
		record ours "$precision" "$round" "${ours[@]}" "${settings[@]}" "${ours_only[@]}" --precision "$precision" --json
		for mode in ${modes//,/ }; do
			[[ $skip == no || $round == 1 ]] || ! slower "$precision" "$mode" || continue
			flags=()
			[[ $mode == eager ]] || flags=(--compile)
			record "$mode" "$precision" "$round" "$PYTHON" "$peer" --ranks "$ranks" "${settings[@]}" --precision "$precision" "${flags[@]}"
		done
	done
done

mkdir -p "$(dirname "$output")"
"$PYTHON" scripts/peers/summary.py "$records" --threads "$threads" --load "$load" --output "$output" \
	--version "$(third_party/version.sh)"
echo "written: $output" >&2
