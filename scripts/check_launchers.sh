#!/bin/sh
# check_launchers.sh runs two ranks under each launcher that is installed, and prints the launchers that work.
#
# Launchers:
#   torchrun in its four modes (default, --standalone, static, c10d), and two torchrun nodes of two ranks (c10d and static)
#   mpirun of Open MPI and MPICH, and two jobs of Open MPI at the same time
# Every run trains the same 40 steps. Runs with the same number of ranks must end with a bit-equal loss.
# A launcher that is not installed is skipped.
#
# Environment variables: HETERO_TRAIN (the program, default ./hetero-train), TORCHRUN (default torchrun),
# OPENMPI (default mpirun.openmpi), MPICH (default mpirun.mpich).
#
# exit: 1 a launcher failed; 2 no launcher is installed
set -u
program=$(realpath "${HETERO_TRAIN:-./hetero-train}") || exit 2
torchrun=${TORCHRUN:-torchrun} openmpi=${OPENMPI:-mpirun.openmpi} mpich=${MPICH:-mpirun.mpich}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
bad=0 ran=0 port=$((20000 + $$ % 8000))

# job NAME TEXT LAUNCHER... runs the program under a launcher. The run is in $dir/NAME, and the output is in the file
# TEXT.
job() {
	job_name=$1 job_text=$2
	shift 2
	timeout 120 "$@" "$program" train --dataset synthetic_image --num-samples 240 --batch-size 6 --set 'model.channels=[4]' --set data.image_size=8 \
		--set device.kind=cpu --set train.steps=40 --set parallel.rendezvous_timeout_seconds=60 --set experiment.output_dir="$dir/$job_name" >"$job_text" 2>&1
}
# check NAME CODE RANKS prints whether a run has succeeded.
check() {
	ran=$((ran + 1))
	result=$(cat "$dir/$1"/*/results/result.json 2>/dev/null)
	loss=$(printf '%s' "$result" | sed -n 's/.*"final_train_loss": *\([0-9.e+-]*\).*/\1/p')
	steps=$(printf '%s' "$result" | sed -n 's/.*"steps": *\([0-9]*\).*/\1/p' | head -n 1)
	want=$(cat "$dir/loss.$3" 2>/dev/null || printf '%s' "$loss" | tee "$dir/loss.$3")
	if [ "$2" = 0 ] && [ "$steps" = 40 ] && [ "$loss" = "$want" ]; then
		printf '%-28s ok: %s ranks, final loss %s\n' "$1" "$3" "$loss"
		return
	fi
	printf '%-28s FAILED: exit code %s, steps %s, final loss %s (want %s); the last lines:\n' "$1" "$2" "${steps:-none}" "${loss:-none}" "$want"
	grep -v '^$' "$dir/$1.txt" | tail -n 15 | sed 's/^/    /'
	bad=$((bad + 1))
}
one() { # NAME LAUNCHER...: runs two ranks
	name=$1
	shift
	job "$name" "$dir/$name.txt" "$@"
	check "$name" $? 2
}
nodes() { # NAME, arguments of both nodes: two torchrun nodes of two ranks. With c10d, either node may be node 0.
	name=$1
	shift
	job "$name" "$dir/$name.txt" "$torchrun" --no-python --nnodes 2 --nproc-per-node 2 --node-rank 0 "$@" &
	first=$!
	job "$name" "$dir/node1.txt" "$torchrun" --no-python --nnodes 2 --nproc-per-node 2 --node-rank 1 "$@"
	second=$?
	wait "$first"
	first=$?
	cat "$dir/node1.txt" >>"$dir/$name.txt"
	check "$name" $((first ? first : second)) 4
}

if command -v "$torchrun" >/dev/null; then
	one torchrun "$torchrun" --no-python --nproc-per-node 2
	one torchrun-standalone "$torchrun" --no-python --nproc-per-node 2 --standalone
	one torchrun-static "$torchrun" --no-python --nproc-per-node 2 --nnodes 1 --node-rank 0 --rdzv-backend=static --master-addr 127.0.0.1 --master-port "$port"
	one torchrun-c10d "$torchrun" --no-python --nproc-per-node 2 --nnodes 1 --rdzv-backend=c10d --rdzv-id "$$" --rdzv-endpoint "localhost:$((port + 1))"
	# If other machines can resolve the name of this machine, they can connect to node 0. Ranks then need a token.
	HETERO_TOKEN=$(head -c 32 /dev/urandom | base64)
	export HETERO_TOKEN
	nodes torchrun-two-nodes-c10d --rdzv-backend=c10d --rdzv-id "$$" --rdzv-endpoint "localhost:$((port + 2))"
	nodes torchrun-two-nodes-static --rdzv-backend=static --master-addr 127.0.0.1 --master-port $((port + 3))
else
	echo "torchrun: skipped, $torchrun is not installed (pip install torch)"
fi
if command -v "$openmpi" >/dev/null; then
	root=
	[ "$(id -u)" != 0 ] || root=--allow-run-as-root
	one openmpi "$openmpi" $root --oversubscribe -np 2
	job openmpi-first "$dir/openmpi-first.txt" "$openmpi" $root --oversubscribe -np 2 &
	first=$!
	one openmpi-second "$openmpi" $root --oversubscribe -np 2
	wait "$first"
	check openmpi-first $? 2
else
	echo "Open MPI: skipped, $openmpi is not installed (apt-get install openmpi-bin)"
fi
if command -v "$mpich" >/dev/null; then
	one mpich "$mpich" -np 2
else
	echo "MPICH: skipped, $mpich is not installed (apt-get install mpich)"
fi
[ "$ran" -gt 0 ] || exit 2
[ "$bad" = 0 ] || { echo "check_launchers.sh: $bad of $ran runs failed"; exit 1; }
echo "check_launchers.sh: all $ran runs succeeded"
