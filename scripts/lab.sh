#!/usr/bin/env bash
# Starts a run of unequal ranks on one machine. Each rank is a process with its own CPU quota.
#
#   make && sudo scripts/lab.sh --cpu 0.8,0.4,0.2,0.2 -- ./hetero-train -c configs/simple_cnn.toml
#
# Each rank is in its own control group (version 1 or 2) with a quota in CPUs, in periods of 10 ms. If the system does
# not permit control groups, the device simulates the quotas by idle time, and every output contains a note. With
# --link, each rank also has its own network namespace and link. docs/lab.md explains which quotas are possible. The
# script removes its control groups and namespaces when it ends. After a kill, its next start removes them. Under sudo,
# the files of the runs then belong to the user who called it.
#
# The script prints the output of rank 0 and the standard error of the other ranks. It passes signals on to all ranks.
#
# exit: the code of rank 0 if it is not 0, otherwise the highest code of the other ranks; 2 bad arguments
set -euo pipefail
set -m # one process group per rank: a Ctrl-C reaches each rank only once, through this script

usage() {
	cat <<-'TEXT'
		usage: scripts/lab.sh --cpu QUOTA,QUOTA,... [options] -- COMMAND...
		  --cpu QUOTA,...    CPUs of each rank, for example 0.8,0.4,0.2,0.2
		  --pin CORES,...    cores of each rank, for example 0,1,0,1 or 0,1-3         (all)
		  --link RATE,...    rate of each rank's network link in the form of tc, or none; needs root
		  --port N           port of rank discovery                           (a free one)
		  --simulate         simulate the quotas by idle time, without control groups
	TEXT
}

fail() { # message
	echo "lab: $1" >&2
	exit 2
}

cpus=() pins=() links=() port='' simulate=''
while (($#)); do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--simulate) simulate=asked && shift && continue ;;
	--) shift && break ;;
	esac
	(($# > 1)) || fail "$1: want a value"
	case $1 in
	--cpu) IFS=, read -ra cpus <<<"$2" ;;
	--pin) IFS=, read -ra pins <<<"$2" ;;
	--link) IFS=, read -ra links <<<"$2" ;;
	--port) port=$2 ;;
	*) usage >&2 && fail "unknown option: got '$1'; the command comes after --" ;;
	esac
	shift 2
done
ranks=${#cpus[@]}
((ranks > 0)) || fail "--cpu: want a quota for each rank, for example --cpu 0.8,0.4"
(($# > 0)) || fail "got no command, want a command after --"
for q in "${cpus[@]}"; do
	[[ $q =~ ^[0-9]{0,4}(\.[0-9]+)?$ ]] && awk -v q="$q" 'BEGIN { exit !(q >= 0.01) }' || fail "--cpu: got '$q', want a number of CPUs of at least 0.01"
done
((${#pins[@]} == 0 || ${#pins[@]} == ranks)) || fail "--pin: got ${#pins[@]} entries, want one for each of the $ranks ranks"
for p in ${pins[@]+"${pins[@]}"}; do
	[[ $p =~ ^[0-9]+(-[0-9]+)?$ ]] && taskset -c "$p" true 2>/dev/null || fail "--pin: got '$p', want a core of this machine, or a range of cores"
done
((${#links[@]} == 0 || ${#links[@]} == ranks)) || fail "--link: got ${#links[@]} entries, want one for each of the $ranks ranks"
for l in ${links[@]+"${links[@]}"}; do
	[[ $l == none || $l =~ ^[0-9]+(\.[0-9]+)?[kmgt]?bit$ ]] || fail "--link: got '$l', want a rate such as 100mbit, or none"
done
[[ $port =~ ^([1-9][0-9]{0,4})?$ ]] && ((${port:-1} < 65536)) || fail "--port: got '$port', want 1 to 65535"

id=$$ scratch=$(mktemp -d) pids=() readers=() running=0 groups='' spaces=0

cleanup() {
	trap '' INT TERM HUP
	local pid
	if ((running)); then
		for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
		for _ in {1..50}; do
			kill -0 "${pids[@]}" 2>/dev/null || break
			sleep 0.1
		done
	fi
	# Also kills children of ranks.
	for pid in ${pids[@]+"${pids[@]}"}; do kill -KILL -- "-$pid" 2>/dev/null || true; done
	[[ -z $groups ]] || remove_groups "$groups"
	wait ${pids[@]+"${pids[@]}"} ${readers[@]+"${readers[@]}"} 2>/dev/null || true # waits for the last lines of output
	while ((spaces > 0)); do
		spaces=$((spaces - 1))
		ip netns del "lab$id-$spaces" 2>/dev/null || true
	done
	ip netns del "lab$id-hub" 2>/dev/null || true
	give_back
	rm -rf "$scratch"
}

# give_back makes the user who called sudo the owner of the folder of runs. This user's later runs can then write there.
runs=experiments
give_back() {
	[[ -z ${SUDO_UID:-} || ! -d $runs ]] || find "$runs" -xdev -user 0 -exec chown -h "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" {} + || true
}
for ((i = 1; i < $#; i++)); do
	next=$((i + 1))
	case ${!i} in
	--output-dir) runs=${!next} ;;
	--output-dir=*) runs=${!i#*=} ;;
	--set) [[ ${!next} != experiment.output_dir=* ]] || runs=${!next#*=} ;;
	esac
done
trap cleanup EXIT

# remove_groups removes a folder of control groups, and kills processes that still run in them (children of a rank).
remove_groups() { # folder
	local group
	for _ in {1..50}; do
		for group in "$1"/rank-* "$1"; do
			[[ -d $group ]] || continue
			while read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done <"$group/cgroup.procs" || true
			rmdir "$group" 2>/dev/null || true
		done
		[[ -d $1 ]] || return 0
		sleep 0.1
	done
	echo "lab: cannot remove control group $1" >&2
}

# find_parent sets parent, the folder in which control groups for CPUs can be created, and their version. If there is
# none, it sets why.
find_parent() {
	local point own
	point=$(awk '{ for (i = 1; i <= NF; i++) if ($i == "-" && $(i+1) == "cgroup" && $(i+3) ~ /(^|,)cpu(,|$)/) print $5 }' /proc/self/mountinfo | head -n 1)
	if [[ -n $point ]]; then
		version=v1
		own=$(awk -F: '$2 ~ /(^|,)cpu(,|$)/ { print $3 }' /proc/self/cgroup)
		parent=$point
		[[ $own == / || ! -d $point$own ]] || parent=$point$own
		return 0
	fi
	version=v2
	parent=$(awk '{ for (i = 1; i <= NF; i++) if ($i == "-" && $(i+1) == "cgroup2") print $5 }' /proc/self/mountinfo | head -n 1)
	[[ -n $parent ]] || { why="no control groups are mounted" && return 1; }
	grep -qw cpu "$parent/cgroup.controllers" 2>/dev/null || { why="$parent has no cpu controller" && return 1; }
	grep -qw cpu "$parent/cgroup.subtree_control" || { echo +cpu >"$parent/cgroup.subtree_control"; } 2>/dev/null ||
		{ why="the cpu controller of $parent cannot be handed down" && return 1; }
}

# make_groups creates a control group for each rank. If it fails, it sets why.
make_groups() {
	local old rank quota period
	find_parent || return 1
	for old in "$parent"/hetero-lab-*; do # control groups of an earlier script that was killed
		[[ ! -d $old ]] || kill -0 "${old##*-}" 2>/dev/null || remove_groups "$old"
	done
	mkdir "$parent/hetero-lab-$id" 2>/dev/null || { why="$parent cannot be written" && return 1; }
	groups=$parent/hetero-lab-$id
	[[ $version == v1 ]] || { echo +cpu >"$groups/cgroup.subtree_control"; } 2>/dev/null || { why="$groups has no cpu controller" && return 1; }
	for rank in "${!cpus[@]}"; do
		# The kernel requires a quota of at least 1 ms of CPU time per period. For very small quotas, the period is
		# therefore longer.
		read -r quota period < <(awk -v q="${cpus[rank]}" 'BEGIN { p = q < 0.1 ? int(1000 / q) : 10000; printf "%d %d\n", q * p + 0.5, p }')
		mkdir "$groups/rank-$rank" || return 1
		if [[ $version == v1 ]]; then
			{ echo "$period" >"$groups/rank-$rank/cpu.cfs_period_us" && echo "$quota" >"$groups/rank-$rank/cpu.cfs_quota_us"; } 2>/dev/null
		else
			{ echo "$quota $period" >"$groups/rank-$rank/cpu.max"; } 2>/dev/null
		fi || { why="$groups/rank-$rank: a quota of $quota in $period µs is refused" && return 1; }
	done
}

# make_links gives each rank a network namespace. A bridge in another namespace connects them. The rate of a link limits
# both directions.
make_links() {
	local rank rate tbf=(root tbf burst 128kb latency 100ms rate)
	[[ $(id -u) == 0 ]] || fail "--link: network namespaces need root"
	ip netns add "lab$id-hub"
	ip -n "lab$id-hub" link add hub type bridge
	ip -n "lab$id-hub" link set hub up
	for rank in "${!cpus[@]}"; do
		ip netns add "lab$id-$rank"
		spaces=$((rank + 1))
		ip -n "lab$id-$rank" link set lo up
		ip link add lab0 netns "lab$id-$rank" type veth peer name "r$rank" netns "lab$id-hub"
		ip -n "lab$id-hub" link set "r$rank" master hub up
		ip -n "lab$id-$rank" address add "10.87.$((rank / 250)).$((rank % 250 + 1))/16" dev lab0
		ip -n "lab$id-$rank" link set lab0 up
		rate=${links[rank]}
		[[ $rate == none ]] && continue
		tc -n "lab$id-$rank" qdisc add dev lab0 "${tbf[@]}" "$rate"
		tc -n "lab$id-hub" qdisc add dev "r$rank" "${tbf[@]}" "$rate"
	done
}

# free_port finds a free port below the range that the kernel uses for outgoing connections.
free_port() {
	for _ in {1..100}; do
		port=$((20000 + RANDOM % 12000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
	done
	fail "no free port found: set --port"
}

run_rank() { # rank, command...: replaces this process
	local rank=$1 place=()
	shift
	trap - INT TERM HUP
	if [[ -z $simulate ]]; then
		echo "$BASHPID" >"$groups/rank-$rank/cgroup.procs"
		export HETERO_LAB_CGROUP=$groups/rank-$rank
	else
		export HETERO_LAB_SLOWDOWN=${slowdowns[rank]}
	fi
	export HETERO_LAB_CPUS=${cpus[rank]} RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
	if ((${#links[@]})); then # ranks that can communicate only through the network count as separate hosts
		export LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.87.0.1 HETERO_LAB_INTERFACE=lab0
		[[ ${links[rank]} == none ]] || export HETERO_LAB_LINK=${links[rank]}
		place=(nsenter "--net=/run/netns/lab$id-$rank")
	fi
	((${#pins[@]} == 0)) || place=(taskset -c "${pins[rank]}" ${place[@]+"${place[@]}"})
	exec ${place[@]+"${place[@]}"} "$@"
}

list() { # values...: prints the values separated by slashes
	local IFS=/
	echo "$*"
}

unset HETERO_SUPERVISED HETERO_LAB_CGROUP HETERO_LAB_CPUS HETERO_LAB_SLOWDOWN HETERO_LAB_INTERFACE HETERO_LAB_LINK
why='asked for' slowdowns=()
if [[ -n $simulate ]] || ! make_groups; then
	simulate=yes
	for q in "${cpus[@]}"; do slowdowns+=("$(awk -v q="$q" 'BEGIN { n = int(q); if (n < q) n++; printf "%.4g", n / q }')"); done
	what="SIMULATED slowdown of the ranks' devices: $(printf 'x%s ' "${slowdowns[@]}" | sed 's/ $//; s| |/|g'), like quotas of $(list "${cpus[@]}") CPUs ($why)"
else
	what="CPU quotas of $(list "${cpus[@]}") CPUs are real (control groups $version)"
fi
((${#pins[@]} == 0)) || what+=", pinned to cores $(list "${pins[@]}")"
if ((${#links[@]})); then
	make_links
	what+="; links of $(list "${links[@]}") are real (network namespaces)"
	export HETERO_TOKEN=${HETERO_TOKEN:-$(head -c 24 /dev/urandom | base64)}
fi
[[ -n $port ]] || free_port
echo "lab: $ranks ranks on one machine: $what" >&2
awk -v q="$(list "${cpus[@]}")" -v n="$(nproc)" 'BEGIN { k = split(q, all, "/"); for (i = 1; i <= k; i++) s += all[i]
	if (s > 0.801 * n) printf "lab: the quotas add up to %g of %d CPUs: leave a fifth of the CPUs free, otherwise step times vary by 7 to 15 %%\n", s, n }' >&2

interrupted=0 starting=1 pending=''
# still_script reports whether the process of a rank is still a copy of this script. Such a copy can lose a signal.
still_script() { # pid
	cmp -s "/proc/$1/cmdline" /proc/$$/cmdline && kill -0 "$1" 2>/dev/null
}

# forward sends a signal to all ranks. It first waits until all of them have started.
forward() { # signal
	local rank
	interrupted=1
	if ((starting)); then
		pending=$1
		return 0
	fi
	for rank in "${!pids[@]}"; do
		while still_script "${pids[rank]}"; do sleep 0.01; done
		kill -s "$1" "${pids[rank]}" 2>/dev/null || true
	done
}
for signal in INT TERM HUP; do trap "forward $signal" "$signal"; done

running=1
for ((rank = 0; rank < ranks; rank++)); do
	if ((rank == 0)); then
		run_rank 0 "$@" </dev/null &
	else
		mkfifo "$scratch/$rank"
		sed -u "s/^/[rank $rank] /" <"$scratch/$rank" >&2 &
		readers+=($!)
		run_rank "$rank" "$@" </dev/null >/dev/null 2>"$scratch/$rank" &
	fi
	pids+=($!)
done
starting=0
[[ -z $pending ]] || forward "$pending"

# wait_for sets code to the exit code of a process. If a signal interrupts the wait, it waits again.
wait_for() { # pid
	local now
	code=127
	while :; do
		interrupted=0
		wait "$1" && now=0 || now=$?
		((now == 127)) || code=$now
		((interrupted)) || return 0
	done
}
first=0 worst=0
for rank in "${!pids[@]}"; do
	wait_for "${pids[rank]}"
	((rank > 0)) || first=$code
	((code <= worst)) || worst=$code
done
running=0
((first == 0)) || exit "$first"
exit "$worst"
