#!/usr/bin/env bash
# Tests and measures the program on a GPU, in less than ten minutes.
#
# Run `make gpu-check` on the machine that built the program, or run this script from an unpacked `make gpu-bundle`.
# The bundle needs neither Go nor a network. It uses the CUDA libraries of the toolkit or of Python on this machine.
#
# Each part has its own time limit. A part that fails or hangs does not affect the results of the others. A part
# writes its output to OUTPUT/PART.log and its figures to OUTPUT/PART.json. All results are in OUTPUT/gpu_check.json:
# {"facts": …, "parts": {"selftest": {"exit": 0, "seconds": 61, "result": …}, …}}. The entry of a part without figures
# contains the reason: {"exit": 1, "seconds": 0, "result": null, "said": "tests/train.test not found: …"}.
#
# exit: 0 all parts passed; 1 some parts failed, the figures of the other parts are complete; 2 bad arguments, or nothing to
# check; 130 interrupted, the figures of the parts that ended are complete
set -uo pipefail
caller=$PWD
cd "$(dirname "$0")/.." || exit 2

usage() {
	cat <<-'TEXT'
		usage: [PYTHON=python3] scripts/gpu_check.sh [options]
		  --parts LIST    run only these parts, in this order
		  --output DIR                                     (build/gpu_check, next to the folder scripts)
		  --binary PATH   the program                      (hetero-train, next to the folder scripts)
		  --scale N       divides the sizes of benchmarks, for tests of the script   (1)

		parts, with their time limits in seconds
		  selftest   80  the conformance suites of the device and of NCCL, without missing or skipped checks; ranks may share a GPU
		  goldens    30  losses of whole runs, compared with PyTorch's; needs tests/train.test of the bundle
		  text       30  losses, logits and gradients of small GPT-2 and BERT models, compared with transformers'; needs tests/models.test of the bundle
		  nccl       30  ranks on one GPU: links, and a run of two ranks compared with a run of one
		  peak       15  bandwidth and arithmetic
		  narrow     35  ResNet-50 224, batch 256, bf16, with weight gradients rounded to bf16; chooses algorithms by timing
		  warm       65  the same with weight gradients in f32, the default; cuDNN compiles their engines, which takes time
		  trace      20  all kernels of five steps of narrow, the gaps between them, and the waits of the host; skipped without CUPTI
		  ops        30  every op of narrow, relative to the peaks
		  attention  28  conformance of attention and linear layers, and every op of GPT-2 124M, 1,024 tokens, batch 8, bf16, without dropout, relative to the peaks; choices for biases and row sums
		  resnet224  70  ResNet-50 224, batch 256, bf16, interleaved with PyTorch
		  half       25  the same in fp16, one round
		  resnet32   30  ResNet-50 32x32, batch 512, bf16, interleaved with PyTorch, one round
		  gpt2       55  GPT-2 124M, 1,024 tokens, batch 8, bf16, interleaved with PyTorch, one round
		  bert       45  BERT-base, 128 tokens, batch 64, bf16, interleaved with PyTorch, one round
		  memcheck   25  compute-sanitizer on short cases, if it is installed
	TEXT
}

fail() { # exit code, message
	echo "gpu_check: $2" >&2
	exit "$1"
}

callers() { # converts a path relative to the caller's folder
	[[ $1 == /* ]] && echo "$1" || echo "$caller/$1"
}

parts=selftest,goldens,text,nccl,peak,narrow,warm,trace,ops,attention,resnet224,half,resnet32,gpt2,bert,memcheck output=build/gpu_check binary=./hetero-train scale=1 PYTHON=${PYTHON:-python3}
[[ $PYTHON != */* ]] || PYTHON=$(callers "$PYTHON")
while (($#)); do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--parts | --output | --binary | --scale) [[ -n ${2:-} ]] || fail 2 "$1: want a value" ;;
	*) usage >&2 && fail 2 "unknown option: got '$1'" ;;
	esac
	case $1 in
	--parts) parts=$2 ;;
	--output) output=$(callers "$2") ;;
	--binary) binary=$(callers "$2") ;;
	--scale) [[ $2 =~ ^[1-9][0-9]*$ ]] && scale=$2 || fail 2 "--scale: got '$2', want a whole number above 0" ;;
	esac
	shift 2
done
declare -A limits=([selftest]=80 [goldens]=30 [text]=30 [nccl]=30 [peak]=15 [narrow]=35 [warm]=65 [trace]=20 [ops]=30 [attention]=28 [resnet224]=70 [half]=25 [resnet32]=30 [gpt2]=55 [bert]=45 [memcheck]=25)
for part in ${parts//,/ }; do
	[[ -n ${limits[$part]:-} ]] || fail 2 "--parts: got '$part', want one or more of ${!limits[*]}"
done
[[ -n ${parts//,/} ]] || fail 2 "--parts: got an empty list, want one or more of ${!limits[*]}"
[[ -x $binary ]] || fail 2 "$binary not found: run make, or unpack the bundle"
mkdir -p "$output" || exit 2
HETERO_LIB_DIR=$(callers "${HETERO_LIB_DIR:-$PWD/build/lib}")
export HETERO_LIB_DIR PYTHON

# --- the parts: each prints to its log, and writes its figures as JSON to $1 ---

part_selftest() { HETERO_REQUIRE=cuda,nccl "$binary" selftest --device cuda,nccl --json "$1" --limit 60s --time 75s; }

# follow PACKAGE TESTS runs tests of the bundle on the GPU. These tests compare results with PyTorch.
follow() {
	local program=tests/$1.test
	[[ -x $program ]] || {
		echo "$program not found: run make gpu-bundle"
		return 1
	}
	(cd "tests/engine/$1" && HETERO_TEST_DEVICE=cuda "../../$1.test" -test.run "$2" -test.v)
}
part_goldens() { follow train 'TestRunsFollowPyTorch/.*/cuda'; }
part_text() { follow models 'TestTransformersFollowPyTorch/.*/cuda'; }

part_memcheck() {
	command -v compute-sanitizer >/dev/null || {
		echo "compute-sanitizer is not installed"
		return 77
	}
	compute-sanitizer --tool memcheck --error-exitcode 9 --target-processes all "$binary" selftest --device cuda --short --run 'cuda/values' --limit 20s
}

part_nccl() {
	"$binary" nccl check --nproc-per-node 2 --set device.share_gpu=true --json >"$1" || return
	local small=(train --resume none --model simple_cnn --dataset synthetic_image --num-samples 512 --epochs 1 --set data.batch_size=64
		--set device.kind=cuda --set train.precision=f32 --set experiment.output_dir="$output/runs")
	"$binary" "${small[@]}" --set experiment.name=one --set parallel.ranks=1 &&
		"$binary" "${small[@]}" --set experiment.name=two --set parallel.ranks=2 --set device.share_gpu=true --set parallel.backend=nccl || return
	grep -H final_train_loss "$output"/runs/{one,two}/logs/summary.json
	awk -F'[:,]' '/"final_train_loss"/ { loss[++n] = $2 } END { d = (loss[1] - loss[2]) / loss[1]; exit !(n == 2 && d < 1e-3 && d > -1e-3) }' \
		"$output"/runs/{one,two}/logs/summary.json
}

part_peak() { "$binary" bench peak --device cuda --json >"$1"; }

part_ops() { "$binary" bench ops --device cuda --model resnet50 --image-size 224 --batch-size $((256 / scale)) --precision bf16 --json >"$1"; }

# Fails if an op of attention is missing in the result. Also prints the rates of linear layers, and the kernels that
# timing has chosen for their biases and row sums. "one pass" means that the matrix product computes them, too.
# The part times the candidates again, and fails if no choice is stored.
part_attention() {
	export XDG_CACHE_HOME=$output/attention_cache
	rm -rf "$XDG_CACHE_HOME"
	mkdir -p "$XDG_CACHE_HOME" || return
	"$binary" selftest --device cuda --run 'cuda/values/transformer/attention' --time 12s || return
	"$binary" selftest --device cuda --run 'cuda/values/linear' --time 8s || return
	"$binary" bench ops --device cuda --model gpt2 --seq-len 1024 --batch-size "$(at_least_one $((8 / scale)))" --precision bf16 --dropout 0 --steps 5 --json >"$1" &&
		"$PYTHON" -c "$attention_check" "$1"
}
attention_check='
import glob, json, os, sys

result = json.load(open(sys.argv[1]))
ops = {op["op"]: op for op in result["ops"]}
linear = "linear", "linear_diff_src", "linear_diff_weights", "linear_cross_entropy_both"
for name in ("attention", "attention_diff") + tuple(name for name in linear if name in ops):
    op = ops[name]
    rate = op["flops"] / op["seconds"] / 1e9
    print("%s: %.3f ms a step, %.0f GFLOP/s, %.1f %% of the peak" % (name, 1e3 * op["seconds"], rate, 100 * rate / result["peak_gflops"]))
shown = 0
folder = os.path.join(os.environ["XDG_CACHE_HOME"], "hetero-train", "choices")
for file in glob.glob(os.path.join(glob.escape(folder), "*.tsv")):
    for fields in (line.rstrip("\n").split("\t") for line in open(file)):
        if len(fields) == 3 and fields[0].endswith((" and bias", " and sums")):
            print("%s: %s, %s us" % tuple(fields))
            shown += 1
if shown == 0:
    sys.exit("%s: no choice for a bias or for row sums" % folder)
'

part_warm() { "$binary" bench train --device cuda --model resnet50 --image-size 224 --batch-size $((256 / scale)) --precision bf16 --steps 20 --json >"$1"; }
part_narrow() { HETERO_CUDA_NARROW_GRADIENTS=1 part_warm "$1"; }

# The settings equal those of part narrow, which has already compiled the engines. The part fails if the host waits for
# the GPU more than once per step, or before it has submitted the whole step. It also fails if the timeline does not
# contain these waits.
part_trace() {
	HETERO_CUDA_NARROW_GRADIENTS=1 "$binary" bench train --device cuda --model resnet50 --image-size 224 --batch-size $((256 / scale)) --precision bf16 --steps 5 \
		--trace "$output/step.json" --trace-steps 5 --json >"$1" || return
	"$PYTHON" -c "$trace_check" "$1"
}
trace_check='
import json, sys

trace = json.load(open(sys.argv[1]))["trace"]
if "gpu_missing" in trace:
    print("skipped:", trace["gpu_missing"])
    sys.exit(77)
gpu = trace.get("gpu")
if not gpu or not gpu["kernels"]:
    sys.exit("the timeline has no kernel of a GPU")
if gpu["lost_records"] != 0:
    sys.exit("%d records were lost" % gpu["lost_records"])
waits = [(w["call"], w["per_step"], w["within_step"]) for w in gpu["host_waits"]]
if waits != [("cudaStreamSynchronize", 1, 0)]:
    sys.exit("host waits (call, times a step, of them with more to do behind it): got %s, want the one cudaStreamSynchronize that ends a step" % waits)
'

# compare SIZE BATCH PRECISION ROUNDS OUTPUT compares the program with compiled PyTorch, in alternating rounds.
compare() {
	scripts/compare_pytorch.sh --device cuda --binary "$binary" --model resnet50 --image-size "$1" --batch-size "$2" --precision "$3" --modes compile \
		--rounds "$4" --steps 40 --warmup 2 --output "$5"
}

# compare_text MODEL TOKENS BATCH OUTPUT does the same for a language model, in bf16, in one round.
compare_text() {
	scripts/compare_pytorch.sh --device cuda --binary "$binary" --model "$1" --seq-len "$2" --batch-size "$3" --precision bf16 --modes compile \
		--rounds 1 --steps 20 --warmup 2 --output "$4"
}

at_least_one() { echo $(($1 > 0 ? $1 : 1)); }
part_gpt2() { compare_text gpt2 1024 "$(at_least_one $((8 / scale)))" "$1"; }
part_bert() { compare_text bert_base 128 "$(at_least_one $((64 / scale)))" "$1"; }

part_resnet224() { compare 224 $((256 / scale)) bf16 2 "$1"; }
part_half() { compare 224 $((256 / scale)) fp16 1 "$1"; }
part_resnet32() { compare 32 $((512 / scale)) bf16 1 "$1"; }

# --- run the parts ----------------------------------------------------------------------------------------------------------------

json_text() { # a text as a JSON string
	local text=${1//\\/\\\\}
	text=${text//\"/\\\"}
	text=${text//$'\t'/ }
	printf '"%s"' "${text//$'\n'/\\n}"
}

told() { # the output of a command as a JSON string, or null if the command fails
	local text
	if text=$("$@" 2>/dev/null) && [[ -n $text ]]; then json_text "$text"; else printf null; fi
}

facts() {
	printf '{"program": %s, "gpus": %s, "torch": %s, "started": "%s"}' "$(told "$binary" version --short)" \
		"$(told nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv,noheader)" \
		"$(told "$PYTHON" -c 'import torch; print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version())')" "$(date -u +%FT%TZ)"
}

# figures_of FILE CODE prints the figures of a part. If the part was stopped, it prints nothing, because the file may be
# incomplete.
figures_of() {
	[[ $2 != 124 && $2 != 137 && $2 != 130 && -s $1 && $(head -c 1 "$1") == '{' && $(tail -c 8 "$1" | tr -d '[:space:]') == *'}' ]] && cat "$1"
}

# ending LINES LOG prints the last lines of a log, which usually contain the reason.
ending() { tail -n "$1" "$2" | tr -d '\000-\010\013-\037'; }

export -f part_selftest part_goldens part_text follow part_nccl part_peak part_narrow part_warm part_trace part_ops part_attention part_resnet224 part_half part_resnet32 part_gpt2 part_bert part_memcheck compare compare_text at_least_one
export binary output scale trace_check attention_check
result=$output/gpu_check.json failed=0 separator= running= interrupted=0
trap 'interrupted=1; [[ -z $running ]] || kill -TERM "$running" 2>/dev/null' INT TERM
{
	printf '{"facts": %s,\n "parts": {' "$(facts)"
	for part in ${parts//,/ }; do
		rm -f "$output/$part.json"
		begun=$SECONDS
		timeout --kill-after=5 "${limits[$part]}" bash -c "part_$part "'"$1"' part "$output/$part.json" >"$output/$part.log" 2>&1 &
		running=$!
		wait "$running"
		code=$? said=passed
		if ((interrupted)); then
			wait "$running"
			code=130
		fi
		running=
		case $code in
		0) ;;
		77) said=skipped ;;
		130) said=interrupted failed=1 ;;
		124 | 137) said="out of time (${limits[$part]} s)" failed=1 ;;
		*) said="FAILED (exit code $code)" failed=1 ;;
		esac
		printf '%-10s %4d s  %s\n' "$part" "$((SECONDS - begun))" "$said" >&2
		((code == 0 || code == 77)) || ending 5 "$output/$part.log" | sed 's/^/    /' >&2
		printf '%s\n  "%s": {"exit": %d, "seconds": %d, "result": ' "$separator" "$part" "$code" "$((SECONDS - begun))"
		figures=$(figures_of "$output/$part.json" "$code")
		printf '%s' "${figures:-null}"
		((code == 0)) && [[ -n $figures ]] || printf ', "said": %s' "$(json_text "$(ending 25 "$output/$part.log")")"
		printf '}'
		separator=,
		((interrupted == 0)) || break
	done
	printf '\n }\n}\n'
} >"$result"
echo "written: $result" >&2
((interrupted == 0)) || exit 130
exit $failed
