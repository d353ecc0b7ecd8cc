#!/bin/sh
# slow_disk.sh [RATE] [SECONDS] measures the cost of checkpoints on a slow disk (docs/reliability.md, row D2).
# slow_disk.sh freeze [SECONDS...] trains while the file system does not respond for 5, 20 and 60 s
# (docs/reliability.md, "A file system that does not answer").
#
# The script creates an ext4 file system in a file. It needs root and loop devices.
#
# Without freeze, a control group limits the writer to RATE bytes per second (default 5000000). This needs the blkio
# (v1) or io (v2) controller. Each run trains ResNet-18 for SECONDS (default 60). Runs with a checkpoint every 25 s and
# runs without checkpoints alternate. A checkpoint has 90 MB, and takes 18 s at the default rate. The script prints the
# median and the 99th percentile of step times.
#
# With freeze, fsfreeze freezes the file system. Each write then blocks in the kernel, as on a network file system whose
# server is down. The script prints a line for each run: result, exit code, time from the signal or the thaw to the end,
# longest step, and time that training waited.
set -eu
mode=slow
if [ "${1:-}" = freeze ]; then mode=freeze; shift; fi
rate=${1:-5000000} seconds=${2:-60} rounds=${ROUNDS:-3}
program=${HETERO_TRAIN:-./hetero-train}
[ "$(id -u)" = 0 ] || { echo "slow_disk.sh: needs root, for a loop device and a control group" >&2; exit 2; }
dir=$(mktemp -d) loop= group=
clean() {
	fsfreeze -u "$dir/disk" 2>/dev/null || true
	umount "$dir/disk" 2>/dev/null || true
	[ -z "$loop" ] || losetup -d "$loop"
	[ -z "$group" ] || rmdir "$group"
	rm -rf "$dir"
}
trap clean EXIT INT TERM
truncate -s 1G "$dir/file"
mkfs.ext4 -q "$dir/file"
loop=$(losetup -f --show "$dir/file")
mkdir "$dir/disk"
mount "$loop" "$dir/disk"
# frozen RANKS SECONDS SIGNALS trains, and freezes the disk for SECONDS. It sends SIGTERM SIGNALS times (0 to 2): 1 s
# after the freeze, and 3 s later.
frozen() {
	ranks=$1 frozen_for=$2 signals=$3
	name=run.$ranks.$frozen_for.$signals
	"$program" train --model simple_cnn --dataset synthetic_image --num-samples 6000 --batch-size 16 --set model.channels=[8] --set data.image_size=16 \
		--set device.kind=cpu --set parallel.ranks="$ranks" --set train.steps=1000000 --set train.max_seconds=$((frozen_for + 12)) --set train.epochs=0 --set train.eval_interval=0 \
		--set checkpoint.interval_seconds=4 --set checkpoint.keep=3 --set experiment.output_dir="$dir/disk" --set experiment.name="$name" --resume none >"$dir/$name.txt" 2>&1 &
	run=$!
	until grep -q 'step ' "$dir/$name.txt" || ! kill -0 "$run" 2>/dev/null; do sleep 0.1; done
	sleep 5
	fsfreeze -f "$dir/disk"
	(sleep "$frozen_for"; fsfreeze -u "$dir/disk") &
	thaw=$!
	began=$(date +%s.%N)
	if [ "$signals" -gt 0 ]; then
		sleep 1
		kill -TERM "$run"
		began=$(date +%s.%N)
	fi
	if [ "$signals" -gt 1 ]; then
		sleep 3
		kill -TERM "$run"
	fi
	code=0
	wait "$run" || code=$?
	ended=$(date +%s.%N)
	wait "$thaw"
	sleep 1 # time for a rank that the supervisor left behind to end
	longest=$(sed -n 's/.*"iteration":\([0-9]*\).*"iteration_time":\([0-9.e-]*\).*/\1 \2/p' "$dir/disk/$name/logs/rank_0_metrics.json" | awk '$1 > 10 { print $2 * 1000 }' | sort -g | tail -n 1)
	printf '%s ranks, frozen %2s s, %s SIGTERM: exit code %3s, %5.1f s after the %s, longest step %.0f ms; %s\n' "$ranks" "$frozen_for" "$signals" "$code" \
		"$(echo "$ended $began" | awk '{ print $1 - $2 }')" "$([ "$signals" -gt 0 ] && echo 'first SIGTERM' || echo freeze)" "$longest" \
		"$(grep -o 'training waited [^"]* for the disk' "$dir/disk/$name/results/result.json" 2>/dev/null)"
	if [ -n "${VERBOSE:-}" ]; then grep -i 'disk\|stopped\|rank did' "$dir/$name.txt" | sed 's/^/    /'; fi
	rm -rf "$dir/disk/$name"
}
if [ "$mode" = freeze ]; then
	[ $# -gt 0 ] || set -- 5 20 60
	for frozen_for; do
		for ranks in 1 2; do
			for signals in 0 1 2; do frozen "$ranks" "$frozen_for" "$signals"; done
		done
	done
	exit
fi
device=$(lsblk -no MAJ:MIN "$loop" | tr -d ' ' | head -n 1)
if [ -d /sys/fs/cgroup/blkio ]; then
	group=/sys/fs/cgroup/blkio/slow_disk.$$
	mkdir "$group"
	echo "$device $rate" >"$group/blkio.throttle.write_bps_device"
elif grep -qw io /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
	group=/sys/fs/cgroup/slow_disk.$$
	mkdir "$group"
	echo "$device wbps=$rate" >"$group/io.max"
else
	echo "slow_disk.sh: this system has neither a blkio nor an io controller" >&2
	exit 2
fi
train() { # name, seconds between checkpoints
	sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$group" "$program" train --model resnet18 --dataset synthetic_image --num-samples 640 --batch-size 16 \
		--set data.image_size=32 --set train.max_seconds="$seconds" --set train.epochs=0 --set checkpoint.interval_seconds="$2" --set train.eval_interval=0 \
		--set experiment.output_dir="$dir/disk" --set experiment.log_dir="$dir/$1" --set experiment.name="$1" --resume none >"$dir/$1.txt" 2>&1 || { tail -n 5 "$dir/$1.txt" >&2; exit 1; }
	# The first ten steps are warm-up.
	sed -n 's/.*"iteration":\([0-9]*\).*"iteration_time":\([0-9.e-]*\).*/\1 \2/p' "$dir/$1/rank_0_metrics.json" | awk '$1 > 10 { print $2 * 1000 }' | sort -g | awk -v name="$1" \
		'{ t[NR] = $1 } END { printf "%-20s %4d steps, p50 %8.2f ms, p99 %8.2f ms\n", name, NR, t[int((NR + 1) / 2)], t[int(NR * 0.99 + 0.5)] }'
	rm -rf "$dir/disk/$1"* "$dir/$1"
}
for round in $(seq "$rounds"); do
	train "without.$round" 0
	train "checkpoints.$round" 25
done
