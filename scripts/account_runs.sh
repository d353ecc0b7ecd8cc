#!/usr/bin/env bash
# Trains 20 short runs of unequal ranks: policies, CPU quotas, noisy neighbours, slow links, evaluations and
# checkpoints. Then compares the sum of the parts of each step with the measured time (scripts/account.py). Also draws
# the predicted and the achieved speed-ups of changes of shares.
#
#     sudo scripts/account_runs.sh FOLDER [NAME...]     # NAME: only these runs
#
# The script needs the privileges of scripts/lab.sh. PROGRAM is the program to run, ./hetero-train by default.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || {
	sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
out=$1
shift
wanted=" $* "
program=${PROGRAM:-./hetero-train}
mkdir -p "$out"

weather=$out/weather.txt
printf '%s\n' 'weather v1' 'seed 7' 'from 20 to 50 rank 1 speed 0.5' 'from 40 to 70 rank 0 neighbour 1' \
	'from 80 rank 2 speed 0.8 jitter 0.1' >"$weather"
neighbours=$out/neighbours.txt
printf '%s\n' 'weather v1' 'every 20 for 5 rank 0 neighbour 1' 'from 60 to 90 rank 1 neighbour 2' >"$neighbours"
link=$out/link.txt
printf '%s\n' 'weather v1' 'from 50 to 80 rank 1 link 5 mbit' >"$link"

# train NAME POLICY QUOTAS LINKS SETTINGS... trains one run.
train() {
	local name=$1 policy=$2 quotas=$3 links=$4
	shift 4
	[ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || return 0
	local lab=(--cpu "$quotas")
	[ "$links" = - ] || lab+=(--link "$links")
	local settings=(data.dataset=synthetic_image data.num_samples=3200 data.batch_size=64 train.epochs=3 train.steps=120
		train.eval_interval=1 checkpoint.interval_steps=40 model.batch_norm=ghost model.ghost_group=4
		"balance.policy=$policy" balance.curve_cache=off "experiment.name=$name" "experiment.output_dir=$out" "$@")
	local flags=()
	for s in "${settings[@]}"; do flags+=(--set "$s"); done
	echo "== $name"
	scripts/lab.sh "${lab[@]}" -- "$program" train -c configs/simple_cnn.toml "${flags[@]}" >"$out/$name.log" 2>&1 ||
		echo "$name failed: $out/$name.log"
}

for policy in none proportional dynamic hybrid; do
	train "quota-$policy" $policy 0.4,0.2,0.1 -
	train "weather-$policy" $policy 0.4,0.2,0.2 - "lab.weather=$weather"
	train "neighbour-$policy" $policy 0.4,0.3 - "lab.weather=$neighbours"
done
train link-none none 0.4,0.3,0.2 none,10mbit,none
train link-hybrid hybrid 0.4,0.3,0.2 none,10mbit,none
train link-change hybrid 0.4,0.3,0.2 none,20mbit,none "lab.weather=$link"
train blind-hybrid hybrid 0.5,0.1 - profile.at_start=off
train blind-dynamic dynamic 0.5,0.1 - profile.at_start=off
train one-rank none 0.5 -
train accumulated hybrid 0.4,0.2 - train.grad_accumulation=2
train four-ranks hybrid 0.3,0.2,0.1,0.1 -

mapfile -t runs < <(find "$out" -mindepth 2 -maxdepth 2 -name logs -printf '%h\n' | sort)
python3 scripts/account.py "${runs[@]}"
mapfile -t changed < <(grep -l '"outcome"' "$out"/*/logs/balance.jsonl | xargs -n 1 dirname | xargs -n 1 dirname)
"$program" analyze --compare "${changed[@]}" --output-dir "$out-comparison" | tail -n 1
