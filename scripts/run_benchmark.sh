#!/usr/bin/env bash
# Trains with every balancing policy on every model and data set, with several seeds, on unequal workers.
#
#   make && scripts/run_benchmark.sh                                          simple_cnn, all policies, four unequal CPU ranks
#   scripts/run_benchmark.sh --scenarios gpus --models resnet50 --batch-size 256      the GPUs of this machine
#   ./hetero-train analyze                                                    compares the runs
#
# Each run has a folder <policy>_<model>_<dataset>_<scenario>_seed<N>. It contains the files of the program, and
# benchmark.json, which describes the run. The same command, run again, skips finished runs and restarts
# interrupted runs.
# - Each different rank of a scenario also trains alone once (scenario solo-...), as the reference for scaling efficiency.
# - Before the first run of a scenario with several ranks, the script profiles the ranks under the same quotas and links.
#   All policies use this profile.
# - The runs of the policies alternate within a seed, so a machine that slows down affects all of them.
# - Runs do not use the step-time curves of earlier runs (balance.curve_cache is off, unless --set turns it on), so
#   repetitions are independent.
#
# exit: 0 all runs are finished; 1 a run failed, all other runs are finished; 2 bad arguments, or a tool is missing;
# 130 interrupted
set -euo pipefail

usage() {
	cat <<-'TEXT'
		usage: scripts/run_benchmark.sh [--engine hetero-train|pytorch] [options]
		  --engine pytorch      the policies on PyTorch's own compute; its options: scripts/pytorch_benchmark.sh
		  --policies LIST       none (or baseline), proportional, dynamic, hybrid   (all four)
		  --models LIST                                                             (simple_cnn)
		  --datasets LIST                                                           (synthetic_image)
		  --seeds LIST                                                              (1,2,3)
		  --scenarios LIST      see below                                           (four-unequal)
		  --cpu QUOTAS          your own scenario: CPUs of each rank, for example 0.8,0.4,0.2,0.2
		  --ranks N             ranks of scenario "equal"                           (2)
		  --steps N             of a run; the first fifth, at least 30, is warm-up      (200)
		  --solo-steps N        of a rank alone                                     (80)
		  --batch-size SAMPLES  global                                              (128)
		  --set KEY=VALUE       any other setting of the program; repeatable
		  --output-dir DIR                                                          (experiments/benchmarks)
		  --keep-checkpoints    keep the checkpoints of finished runs
		  --binary PATH                                                             (./hetero-train)
		  --lab PATH            starts ranks with CPU quotas                        (scripts/lab.sh)
		  --dry-run             only print the runs

		scenarios, with the device that each rank represents
		  single        one rank on the whole machine
		  equal         --ranks equal ranks on this machine
		  four-unequal  CPU quotas 0.8,0.53,0.23,0.23    RTX 3060, RTX 3050, GTX 1650, GTX 1650
		  laptops       CPU quotas 0.8,0.5,0.3           laptops: gaming, office, old
		  laptops-lan   the same, each on a link of 1 Gbit/s
		  laptops-wifi  the same, each on a link of 100 Mbit/s
		  gpus          one rank on each GPU of this machine
		The quotas of four-unequal have the ratio of sqrt(f32 TFLOP/s x GB/s) of those cards: 12.7 x 360, 9.1 x 224, 3.0 x 128.
		scripts/lab.sh starts ranks with quotas. It needs root and control groups.
	TEXT
}

say() { echo "run_benchmark: $*" >&2; }

fail() { # exit code, message
	say "$2"
	exit "$1"
}

if [[ ${1:-} == --engine ]]; then
	case ${2:-} in
	pytorch) exec "$(dirname "$0")/pytorch_benchmark.sh" "${@:3}" ;;
	hetero-train) shift 2 ;;
	*) fail 2 "--engine: got '${2:-}', want hetero-train or pytorch" ;;
	esac
fi

number() { # option, value: fails unless the value is an integer above 0
	[[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || fail 2 "$1: got '$2', want a whole number above 0"
}

words() { # option, value: fails unless the value is a comma-separated list of names
	[[ $2 =~ ^[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*$ ]] || fail 2 "$1: got '$2', want names separated by commas"
}

json() { # a text as a JSON string
	local text=${1//\\/\\\\}
	text=${text//\"/\\\"}
	text=${text//$'\t'/\\t}
	printf '"%s"' "${text//$'\n'/\\n}"
}

json_list() { # texts as a JSON list
	local text separator=
	printf '['
	for text; do
		printf '%s' "$separator"
		json "$text"
		separator=', '
	done
	printf ']'
}

usable_cpus() { # the number of CPUs that this process may use, or its CPU quota if that is smaller
	local cpus quota=max period=1
	cpus=$(env -u OMP_NUM_THREADS nproc)
	[[ ! -r /sys/fs/cgroup/cpu.max ]] || read -r quota period </sys/fs/cgroup/cpu.max
	if [[ $quota != max ]] && ((quota < cpus * period)); then
		cpus=$(((quota + period - 1) / period))
	fi
	echo "$cpus"
}

cd "$(dirname "$0")/.."
policies=none,proportional,dynamic,hybrid models=simple_cnn datasets=synthetic_image seeds=1,2,3 scenarios='' quotas=''
ranks=2 steps=200 solo_steps=80 batch=128 output=experiments/benchmarks keep=no binary=./hetero-train lab=scripts/lab.sh dry=no
settings=()
while (($#)); do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--dry-run) dry=yes && shift && continue ;;
	--keep-checkpoints) keep=yes && shift && continue ;;
	--policies | --models | --datasets | --seeds | --scenarios | --cpu | --ranks | --steps | --solo-steps | --batch-size | --set | --output-dir | --binary | --lab)
		(($# > 1)) || fail 2 "$1: want a value" ;;
	*) usage >&2 && fail 2 "unknown option: got '$1'" ;;
	esac
	case $1 in
	--policies) words "$1" "$2" && policies=$2 ;;
	--models) words "$1" "$2" && models=$2 ;;
	--datasets) words "$1" "$2" && datasets=$2 ;;
	--seeds) words "$1" "$2" && seeds=$2 ;;
	--scenarios) words "$1" "$2" && scenarios=$2 ;;
	--cpu) quotas=$2 ;;
	--ranks) number "$1" "$2" && ranks=$2 ;;
	--steps) number "$1" "$2" && steps=$2 ;;
	--solo-steps) number "$1" "$2" && solo_steps=$2 ;;
	--batch-size) number "$1" "$2" && batch=$2 ;;
	--set)
		[[ $2 == *?=* ]] || fail 2 "--set: got '$2', want table.key=value"
		settings+=("$2")
		;;
	--output-dir) output=$2 ;;
	--binary) binary=$2 ;;
	--lab) lab=$2 ;;
	esac
	shift 2
done
for entry in ${settings[@]+"${settings[@]}"}; do
	case ${entry%%=*} in
	experiment.name | experiment.output_dir | experiment.seed | experiment.log_dir | balance.policy | balance.fixed_shares | model.name | data.dataset | data.batch_size | train.steps | train.resume | parallel.ranks)
		fail 2 "--set ${entry%%=*}: this script sets the key itself; use the option of this script" ;;
	esac
done
[[ -n $scenarios || -n $quotas ]] || scenarios=four-unequal
policies=${policies//baseline/none}
for policy in ${policies//,/ }; do
	[[ " none proportional dynamic hybrid " == *" $policy "* ]] || fail 2 "--policies: got '$policy', want a list of: none (or baseline) proportional dynamic hybrid"
done
for seed in ${seeds//,/ }; do
	[[ $seed =~ ^[0-9]{1,9}$ ]] || fail 2 "--seeds: got '$seed', want whole numbers"
done
((steps > 50)) || fail 2 "--steps: got $steps, want at least 51: 30 steps are warm-up, and more than 20 are compared"
((solo_steps > 50)) || fail 2 "--solo-steps: got $solo_steps, want at least 51: 30 steps are warm-up, and more than 20 are compared"

# The scenarios. A scenario with CPU quotas has a list of quotas and a list of devices, with one entry per rank.
laptop_quotas="0.8,0.5,0.3" laptop_names="gaming laptop,office laptop,old laptop"
declare -A quotas_of=([four-unequal]="0.8,0.53,0.23,0.23" [laptops]=$laptop_quotas [laptops-lan]=$laptop_quotas [laptops-wifi]=$laptop_quotas)
declare -A devices_of=([four-unequal]="RTX 3060,RTX 3050,GTX 1650,GTX 1650" [laptops]=$laptop_names [laptops-lan]=$laptop_names [laptops-wifi]=$laptop_names)
declare -A links_of=([laptops-lan]="1gbit,1gbit,1gbit" [laptops-wifi]="100mbit,100mbit,100mbit")
if [[ -n $quotas ]]; then
	[[ $quotas =~ ^[0-9]*\.?[0-9]+(,[0-9]*\.?[0-9]+)*$ ]] || fail 2 "--cpu: got '$quotas', want the CPUs of each rank, for example 0.8,0.4,0.2,0.2"
	own=lab
	for quota in ${quotas//,/ }; do
		percent=$(awk "BEGIN { printf \"%.0f\", 100 * $quota }")
		((percent > 0)) || fail 2 "--cpu: got a quota of $quota CPUs, want at least 0.01"
		own+=-$percent
	done
	quotas_of[$own]=$quotas
	scenarios+=${scenarios:+,}$own
fi
for scenario in ${scenarios//,/ }; do
	[[ -n ${quotas_of[$scenario]-} || " single equal gpus " == *" $scenario "* ]] || fail 2 "--scenarios: got '$scenario', want a list of: single equal four-unequal laptops laptops-lan laptops-wifi gpus"
done

# Check requirements.
cpus=$(usable_cpus)
cpu_model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
machine="${cpu_model:-$(uname -m)}, $cpus CPUs"
missing() { # exit code, message: in a dry run, prints only a warning
	[[ $dry == no ]] || { say "WARNING: $2" && return; }
	fail "$1" "$2"
}
[[ -x $binary ]] || missing 2 "no $binary: run make first"
gpus=()
for scenario in ${scenarios//,/ }; do
	if [[ -n ${quotas_of[$scenario]-} ]]; then
		[[ -x $lab ]] || missing 2 "no $lab, which starts ranks with CPU quotas (scenario $scenario)"
		awk "BEGIN { exit !(${quotas_of[$scenario]//,/+} > $cpus) }" &&
			missing 2 "scenario $scenario: quotas ${quotas_of[$scenario]} are more than the $cpus CPUs of this machine, so ranks would take time from each other"
	elif [[ $scenario == equal ]]; then
		((ranks <= cpus)) || missing 2 "--ranks: got $ranks, want at most the $cpus CPUs of this machine"
	elif [[ $scenario == gpus ]]; then
		if ! command -v nvidia-smi >/dev/null || ! mapfile -t gpus < <(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) || ((${#gpus[@]} == 0)); then
			missing 2 "scenario gpus: nvidia-smi finds no GPU on this machine"
		fi
	fi
done
load=$(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null || echo 0)
if awk "BEGIN { exit !($load > 0.5) }"; then
	say "WARNING: the machine is busy (load average $load): other work makes the figures worse and the differences between policies smaller"
fi

# The list of runs. Each line contains policy, model, data set, scenario, seed and steps, separated by tabs.
plan=()
planned=" "
add() {
	local name=$1_$2_$3_$4_seed$5
	[[ $planned != *" $name "* ]] || return 0
	planned+="$name "
	((${#name} <= 64)) || fail 2 "the name $name has ${#name} characters, want at most 64: use a scenario with fewer ranks"
	plan+=("$1"$'\t'"$2"$'\t'"$3"$'\t'"$4"$'\t'"$5"$'\t'"$6")
}
solos() { # scenario: for each rank, prints the scenario in which this rank runs alone
	local quota i
	if [[ -n ${quotas_of[$1]-} ]]; then
		for quota in ${quotas_of[$1]//,/ }; do echo "solo-$quota"; done
	elif [[ $1 == equal ]]; then
		for ((i = 0; i < ranks; i++)); do echo "solo-threads$((cpus / ranks))"; done
	elif [[ $1 == gpus ]]; then
		for i in "${!gpus[@]}"; do echo "solo-gpu$(first_like "$i")"; done
	fi
}
first_like() { # index of a GPU: prints the index of the first GPU with the same name
	local i
	for i in "${!gpus[@]}"; do
		[[ ${gpus[i]} != "${gpus[$1]}" ]] || { echo "$i" && return; }
	done
}
for model in ${models//,/ }; do
	for dataset in ${datasets//,/ }; do
		for scenario in ${scenarios//,/ }; do
			for solo in $(solos "$scenario"); do
				add none "$model" "$dataset" "$solo" "${seeds%%,*}" "$solo_steps"
			done
			for seed in ${seeds//,/ }; do
				for policy in ${policies//,/ }; do
					[[ $scenario != single ]] || policy=none # a single rank has nothing to balance
					add "$policy" "$model" "$dataset" "$scenario" "$seed" "$steps"
				done
			done
		done
	done
done

# prepare POLICY MODEL DATASET SCENARIO SEED STEPS sets these variables for one run:
#   name           name of the run
#   command        command that starts the run
#   description    content of benchmark.json
#   profile        command that measures the ranks before the first run of the scenario; empty for a single rank
#   profile_dir    folder of its output; empty for a single rank
prepare() {
	local scenario=$4 own=() world=1 devices=() solo=() label=$4 quota entry
	name=$1_$2_$3_$4_seed$5
	command=("$binary" train --model "$2" --dataset "$3" --experiment-name "$name" --output-dir "$output"
		--set "data.batch_size=$batch" --set "train.steps=$6" --set "experiment.seed=$5" --set "balance.policy=$1" --set balance.curve_cache=off
		--set train.eval_interval=0 --set checkpoint.interval_steps=0 --set checkpoint.interval_seconds=0 --set checkpoint.keep=1 --set checkpoint.best=false
		--set profile.enabled=true)
	# With synchronised batch normalisation, ranks would wait for each other within the passes, for any shares.
	[[ "${settings[*]-}" == *model.batch_norm=* ]] || own+=(--set model.batch_norm=ghost --set model.ghost_group=4)
	case $scenario in
	single) own+=(--set parallel.ranks=1) ;;
	equal) world=$ranks own+=(--set "parallel.ranks=$ranks") ;;
	gpus) world=${#gpus[@]} own+=(--set device.kind=cuda) devices=("${gpus[@]}") ;;
	solo-threads*) own+=(--set parallel.ranks=1 --set "device.threads=${scenario#solo-threads}") ;;
	solo-gpu*) own+=(--set device.kind=cuda --set parallel.ranks=1) ;;
	esac
	for entry in ${settings[@]+"${settings[@]}"}; do
		# Lists for all ranks.
		[[ $scenario == solo-* && $entry == @(balance.*|profile.gpu_profiles=*) ]] || own+=(--set "$entry")
	done
	quota=${quotas_of[$scenario]-}
	[[ $scenario != solo-[0-9.]* ]] || quota=${scenario#solo-}
	local each=${quota//[^,]/}
	[[ -z $quota ]] || world=$((${#each} + 1))
	# The script profiles all ranks under the conditions of the runs. The policies proportional, dynamic and hybrid
	# start with the scores of this profile.
	profile=() profile_dir=
	if ((world > 1)) && [[ "${settings[*]-}" != *profile.gpu_profiles=* ]]; then
		profile_dir=$output/.profiles/$2_$3_$4
		profile=("$binary" profile --set "model.name=$2" --set "data.dataset=$3" --set "data.batch_size=$batch" "${own[@]}" --output-dir "$profile_dir")
		own+=(--set "profile.gpu_profiles=$profile_dir/gpu_profiles.json")
	fi
	command+=("${own[@]}")
	if [[ -n $quota ]]; then
		local limits=(--cpu "$quota")
		[[ -z ${links_of[$scenario]-} ]] || limits+=(--link "${links_of[$scenario]}")
		command=("$lab" "${limits[@]}" -- "${command[@]}")
		((${#profile[@]} == 0)) || profile=("$lab" "${limits[@]}" -- "${profile[@]}")
		IFS=, read -r -a devices <<<"${devices_of[$scenario]-}"
	elif [[ $scenario == solo-gpu* ]]; then
		command=(env "CUDA_VISIBLE_DEVICES=${scenario#solo-gpu}" "${command[@]}")
	fi
	mapfile -t solo < <(solos "$scenario")
	description=$(
		cat <<-JSON
			{
			  "schema": 1,
			  "policy": $(json "$1"),
			  "model": $(json "$2"),
			  "dataset": $(json "$3"),
			  "scenario": $(json "$label"),
			  "seed": $((10#$5)),
			  "ranks": $world,
			  "batch_size": $batch,
			  "steps": $6,
			  "cpu_quotas": [$quota],
			  "devices": $(json_list ${devices[@]+"${devices[@]}"}),
			  "solo": $(json_list ${solo[@]+"${solo[@]}"}),
			  "machine": $(json "$machine"),
			  "command": $(json_list "${command[@]}")
			}
		JSON
	)
}

# state DIR STEPS prints finished, unfinished or absent. If a finished run has other settings, state fails.
state() {
	[[ -d $1 ]] || { echo absent && return; }
	[[ -f $1/benchmark.json ]] || fail 2 "$1 exists, but this script did not create it: use another --output-dir"
	grep -qx '  "exit": 0,\?' "$1/results/result.json" 2>/dev/null || { echo unfinished && return; }
	[[ $(<"$1/benchmark.json") == "$description" ]] || {
		diff <(echo "$description") "$1/benchmark.json" >&2 || true
		fail 2 "$1 contains a finished run with other settings (above: < is wanted, > is in the folder): use another --output-dir, or remove the folder"
	}
	grep -qx "  \"steps\": $2," "$1/results/result.json" || { echo unfinished && return; }
	echo finished
}

set_aside() { # folder of an interrupted run: renames it to .unfinished; analyze ignores names with a leading dot
	local n=1 to
	to=$output/.unfinished/$(basename "$1")
	while [[ -e $to.$n ]]; do n=$((n + 1)); done
	mkdir -p "$output/.unfinished"
	mv "$1" "$to.$n"
	echo "$to.$n"
}

measure_ranks() { # runs the profile command that prepare has set, unless the profile exists
	[[ -n $profile_dir && ! -f $profile_dir/gpu_profiles.json ]] || return 0
	mkdir -p "$profile_dir"
	say "    profiling the ranks (about a minute)"
	"${profile[@]}" >"$profile_dir/console.log" 2>&1 </dev/null &
	child=$!
	local code=0
	wait "$child" || code=$?
	child=
	case $code in
	0) sed -n '/^compute scores predict/s/^/run_benchmark:     /p; /^Node [0-9]*: /s/^/run_benchmark:     /p' "$profile_dir/console.log" >&2 ;;
	75 | 130 | 143) interrupted ;;
	*) fail 1 "the profile failed with exit code $code: $(reason "$profile_dir")" ;;
	esac
}

reason() { # folder: prints why its run failed
	grep -A 5 '^hetero-train: ' "$1/console.log" || tail -n 3 "$1/console.log"
}

duration() { # seconds
	if (($1 >= 3600)); then
		printf '%d h %02d min' $(($1 / 3600)) $(($1 % 3600 / 60))
	elif (($1 >= 60)); then
		printf '%d min %02d s' $(($1 / 60)) $(($1 % 60))
	else
		printf '%d s' "$1"
	fi
}

# The script checks all folders before the first run. It then finds a folder with other settings immediately, and not
# after hours.
todo=() skipped=0
for line in "${plan[@]}"; do
	IFS=$'\t' read -r -a run <<<"$line"
	prepare "${run[@]}"
	what=$(state "$output/$name" "${run[5]}")
	if [[ $what == finished ]]; then
		skipped=$((skipped + 1))
	else
		todo+=("$line")
	fi
	[[ $dry == no ]] || printf '%s %s: %s\n' "$what" "$name" "${command[*]}"
done
say "${#plan[@]} runs: $skipped finished, ${#todo[@]} to do, into $output"
[[ $dry == no ]] || exit 0

child=
interrupted() {
	[[ -z $child ]] || { kill -TERM "$child" 2>/dev/null && wait "$child"; } || true
	say "interrupted; the same command continues with the interrupted run"
	exit 130
}
trap interrupted INT TERM HUP

mkdir -p "$output" || fail 2 "cannot create $output"
began=$SECONDS done_runs=0 done_steps=0 all_steps=0 failures=()
for line in ${todo[@]+"${todo[@]}"}; do all_steps=$((all_steps + ${line##*$'\t'})); done
for line in ${todo[@]+"${todo[@]}"}; do
	IFS=$'\t' read -r -a run <<<"$line"
	prepare "${run[@]}"
	dir=$output/$name eta="no estimate yet"
	((done_runs == 0)) || eta="about $(duration $(((SECONDS - began) * (all_steps - done_steps) / done_steps))) to go"
	[[ ! -d $dir ]] || say "$name was interrupted: its folder is now $(set_aside "$dir"), and the run starts again"
	say "[$((done_runs + 1))/${#todo[@]}] $name ($eta)"
	measure_ranks
	mkdir -p "$dir"
	printf '%s\n' "$description" >"$dir/benchmark.json"
	"${command[@]}" >"$dir/console.log" 2>&1 </dev/null &
	child=$!
	code=0
	wait "$child" || code=$?
	child=
	done_runs=$((done_runs + 1)) done_steps=$((done_steps + run[5]))
	case $code in
	0)
		[[ $(state "$dir" "${run[5]}") == finished ]] || fail 1 "$name: got exit code 0, but $dir/results/result.json is not of a finished run"
		say "    $(sed -n 's/^  "samples_per_second": \([0-9]*\).*/\1 samples\/s/p' "$dir/results/result.json")"
		[[ $keep == yes ]] || rm -rf "$dir/checkpoints"
		;;
	2) fail 2 "$name: the program rejects the settings: $(reason "$dir")" ;;
	75 | 130 | 143) interrupted ;;
	*)
		say "    FAILED with exit code $code: $(reason "$dir")"
		failures+=("$name")
		;;
	esac
done
if ((${#failures[@]})); then
	fail 1 "${#failures[@]} runs failed: ${failures[*]}; their output is in console.log in their folders, and the same command runs them again"
fi
say "all ${#plan[@]} runs are finished; compare them with: $binary analyze --input-dir $output"
