#!/usr/bin/env bash
# Prepares machines for a training with hetero-train, through ssh alone. It checks the machines, copies the release and
# a token to a folder of the user, and tests the network between the machines. It prints the command that starts a
# training.
#
#   scripts/setup_cluster.sh [OPTION...] HOST...     HOST as for ssh: a name, user@name, or a name of ~/.ssh/config
#
#   --release FILE    archive of a release (make dist). Default: the newest one in dist/, else an archive of this build
#   --dir FOLDER      folder on each host, below the home folder unless it starts with / (default: hetero-train)
#   --token FILE      file with the secret of the runs (default: ~/.config/hetero-train/token); made if it is missing
#   --master ADDRESS  address of the first host, as the others see it (default: the host name that ssh uses)
#   --port PORT       port of rank 0 (default: 29500)
#   --ports A-B       ports of the gradients (parallel.ports; default: free ports)
#   --ssh-config FILE configuration of ssh (default: that of the user)
#   --dry-run         check the hosts, and print the changes without making them
#
# The script needs no root, and changes no firewall and no setting of ssh. It can be repeated: it skips steps that are
# already done. Exit codes: 0 done; 1 a host has a fault; 2 arguments; 5 the hosts cannot reach each other.
set -uo pipefail
caller=$PWD
cd "$(dirname "$0")/.." || exit 1

usage() {
	echo "setup_cluster: $*" >&2
	echo "usage: scripts/setup_cluster.sh [--release FILE] [--dir FOLDER] [--token FILE] [--master ADDRESS] [--port PORT]" \
		"[--ports A-B] [--ssh-config FILE] [--dry-run] HOST..." >&2
	exit 2
}

# from_caller prints the full path of a file that the caller named relative to its own folder.
from_caller() { case $1 in /*) echo "$1" ;; *) echo "$caller/$1" ;; esac; }

release='' folder=hetero-train token=${HOME:-}/.config/hetero-train/token master='' port=29500 ports='' dry='' hosts=()
ssh=(ssh -o BatchMode=yes -o ConnectTimeout=10)
while [ $# -gt 0 ]; do
	case $1 in
	--release | --dir | --token | --master | --port | --ports | --ssh-config)
		[ -n "${2:-}" ] || usage "$1: got no value"
		case $1 in
		--release) release=$(from_caller "$2") ;;
		--dir) folder=$2 ;;
		--token) token=$(from_caller "$2") ;;
		--master) master=$2 ;;
		--port) port=$2 ;;
		--ports) ports=$2 ;;
		--ssh-config)
			config=$2 # ssh accepts the name "none"
			if [ "$config" != none ]; then
				config=$(from_caller "$2")
				if [ ! -r "$config" ] || [ -d "$config" ]; then
					usage "--ssh-config: cannot read a file $config"
				fi
			fi
			ssh+=(-F "$config")
			;;
		esac
		shift
		;;
	--dry-run) dry=yes ;;
	-h | --help)
		sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "scripts/${0##*/}"
		exit 0
		;;
	-*) usage "unknown option $1" ;;
	*) hosts+=("$1") ;;
	esac
	shift
done
[ ${#hosts[@]} -gt 0 ] || usage "got no HOST"
seen=' '
for host in "${hosts[@]}"; do
	[[ $host =~ ^[A-Za-z0-9_][A-Za-z0-9_.@:%-]*$ ]] || usage "HOST: got '$host', want a name as for ssh"
	[[ $seen != *" $host "* ]] || usage "HOST: got $host twice"
	seen+="$host "
done
# These values become parts of commands on the hosts.
[[ $folder =~ ^[A-Za-z0-9_/][A-Za-z0-9_./-]*$ && /$folder/ != */../* ]] ||
	usage "--dir: got '$folder', want a folder of letters, digits and _ . / -"
[[ -z $master || $master =~ ^[A-Za-z0-9_][A-Za-z0-9_.:%-]*$ ]] || usage "--master: got '$master', want a name or an IP address"
if ! [[ $port =~ ^[1-9][0-9]{0,4}$ ]] || [ "$port" -lt 1024 ] || [ "$port" -gt 65535 ]; then
	usage "--port: got '$port', want a port from 1024 to 65535"
fi
if [ -n "$ports" ] && ! { [[ $ports =~ ^([1-9][0-9]{0,4})-([1-9][0-9]{0,4})$ ]] &&
	[ "${BASH_REMATCH[1]}" -le "${BASH_REMATCH[2]}" ] && [ "${BASH_REMATCH[2]}" -le 65535 ]; }; then
	usage "--ports: got '$ports', want a range of ports from 1 to 65535, such as 29600-29663"
fi
if [ -e "$token" ] && ! { [ -f "$token" ] && [ -r "$token" ]; }; then usage "--token: got $token, want a file that you can read"; fi
for program in ssh sha256sum tar gzip; do
	command -v $program >/dev/null || { echo "setup_cluster: $program is missing on this machine: install it" >&2; exit 1; }
done

room=$(mktemp -d) || exit 1
trap 'rm -rf "$room"' EXIT
failed=0
fault() { # HOST TEXT REMEDY
	echo "fault    $1: $2" >&2
	echo "         cure: $3" >&2
	failed=1
}
warning() {
	echo "warning  $1: $2"
	echo "         cure: $3"
}

# The release is an archive with one folder, which contains bin, lib/hetero-train and share.
if [ -z "$release" ]; then
	# shellcheck disable=SC2012 # names of releases have no special characters
	release=$(ls -t dist/hetero-train-*-linux-"$(uname -m)".tar.gz 2>/dev/null | head -n 1)
fi
if [ -n "$release" ]; then
	[ -f "$release" ] || usage "--release: there is no file $release"
	# head ends early, and tar then fails, which is not an error.
	name=$({ tar -tzf "$release" 2>/dev/null || true; } | head -n 1 | cut -d / -f 1)
	[[ $name =~ ^hetero-train-[A-Za-z0-9_.+-]+-linux-(x86_64|aarch64)$ ]] ||
		usage "--release: $release is no release: got the folder '$name', want hetero-train-VERSION-linux-ARCHITECTURE"
	arch=${BASH_REMATCH[1]} glibc=2.28
else
	libraries=${HETERO_LIB_DIR:-build/lib} binary=${HETERO_TRAIN:-./hetero-train}
	if [ ! -x "$binary" ] || [ ! -f "$libraries/libhetero_cpu.so" ]; then
		echo "setup_cluster: there is no release in dist/, and no build in $binary and $libraries:" \
			"run make dist, or make" >&2
		exit 1
	fi
	arch=$(uname -m)
	glibc=$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2) # a build needs the glibc of this machine, or a later one
	version=$("$binary" --version | sed -n '1s/^hetero-train \([^ ,]*\).*/\1/p')
	[ -n "$version" ] || { echo "setup_cluster: $binary does not state its version" >&2; exit 1; }
	name=hetero-train-$version-$(sha256sum <"$binary" | cut -c 1-8)-linux-$arch # the hash gives each build its own name
	mkdir -p "$room/$name/bin" "$room/$name/lib/hetero-train" "$room/$name/share/hetero-train"
	cp "$binary" "$room/$name/bin/hetero-train"
	for library in "$libraries"/*.so*; do
		case $library in *_shim.so | *_fake.so*) ;; *) cp "$library" "$room/$name/lib/hetero-train/" ;; esac
	done
	cp -r configs "$room/$name/share/hetero-train/"
	release=$room/release.tar.gz
	# The same build gives the same archive, so a second call can skip the copy.
	tar -C "$room" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -n -1 >"$release" || exit 1
fi
sum=$(sha256sum <"$release" | cut -d ' ' -f 1)
need=$(($(gzip -dc "$release" | wc -c) / 1048576 + $(wc -c <"$release") / 1048576 + 64)) # in MiB

# Step 1: checks, which change nothing.
# shellcheck disable=SC2016 # the host expands the variables
probe='echo system=$(. /etc/os-release 2>/dev/null && echo "$ID $VERSION_ID" || uname -s)
echo arch=$(uname -m)
echo glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d " " -f 2)
echo driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
echo gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | wc -l)
echo free=$(df -Pk . | sed -n 2p | { read -r a b c free rest; echo $((free / 1024)); })
for p in sha256sum tar gzip cmp; do command -v $p >/dev/null || echo missing=$p; done
[ -w . ] || echo readonly=$(pwd)
echo there=$(cat "$1/$2/.sha256" 2>/dev/null)
echo version=$("$1/current/bin/hetero-train" --version 2>/dev/null | head -n 1)
echo now=$(date +%s.%N)'
declare -A there_of
table=("HOST|SYSTEM|ARCH|GLIBC|GPUS, DRIVER|FREE MIB|CLOCK|HETERO-TRAIN")
drivers=()
for host in "${hosts[@]}"; do
	before=$(date +%s.%N)
	if ! "${ssh[@]}" "$host" "exec sh -s '$folder' '$name'" <<<"$probe" >"$room/probe" 2>"$room/error"; then
		fault "$host" "ssh fails: $(tail -n 1 "$room/error")" \
			"make 'ssh -o BatchMode=yes $host true' work: a key that ssh uses without a question, and a known host key"
		table+=("$host|no answer||||||")
		continue
	fi
	after=$(date +%s.%N)
	get() { sed -n "s/^$1=//p" "$room/probe" | head -n 1; }
	offset=$(awk -v n="$(get now)" -v a="$before" -v b="$after" 'BEGIN { printf "%+.1f", n - (a + b) / 2 }')
	there_of[$host]=$(get there)
	gpus=$(get gpus)
	[ -z "$(get driver)" ] || gpus+=", $(get driver)"
	table+=("$host|$(get system)|$(get arch)|$(get glibc)|$gpus|$(get free)|$offset s|$(get version)")
	[ -z "$(get driver)" ] || drivers+=("$(get driver)")
	[ "$(get arch)" = "$arch" ] || fault "$host" "its processor is $(get arch), and the release is for $arch" \
		"set up hosts of one architecture at a time, with --release for each"
	if [ -z "$(get glibc)" ] || [ "$(printf '%s\n' "$glibc" "$(get glibc)" | sort -V | head -n 1)" != "$glibc" ]; then
		fault "$host" "its glibc is '$(get glibc)', want $glibc or later" \
			"use a release of make dist, which needs glibc 2.28, or a later system"
	fi
	missing=$(sed -n 's/^missing=//p' "$room/probe" | tr '\n' ' ')
	[ -z "$missing" ] || fault "$host" "there is no $missing" "install $missing there"
	[ -z "$(get readonly)" ] || fault "$host" "the user cannot write to $(get readonly)" "use another user, or --dir"
	[ "$(get there)" = "$sum" ] || [ "$(get free)" -ge "$need" ] ||
		fault "$host" "$(get free) MiB are free, and the release needs $need MiB" "free space in the home folder, or use --dir"
	if awk -v o="$offset" 'BEGIN { exit !(o > 2 || o < -2) }'; then
		warning "$host" "its clock is $offset s from that of this machine" "start a time service, such as chrony"
	fi
done
printf '%s\n' "${table[@]}" | awk -F '|' '
	{ for (i = 1; i <= NF; i++) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) } fields = NF }
	END {
		for (r = 1; r <= NR; r++) {
			line = ""
			for (i = 1; i <= fields; i++) line = line sprintf("%-" width[i] + 2 "s", cell[r, i])
			sub(/ +$/, "", line)
			print line
		}
	}'
if [ "$(printf '%s\n' "${drivers[@]}" | sort -u | wc -l)" -gt 1 ]; then
	warning "${hosts[*]}" "different drivers: $(printf '%s\n' "${drivers[@]}" | sort -u | paste -sd ' ')" \
		"install one version where you can; NCCL needs drivers that all support its CUDA version"
fi
[ $failed = 0 ] || { echo "setup_cluster: nothing was changed" >&2; exit 1; }

# Step 2: the release and the token.
if [ ! -s "$token" ]; then
	if [ -n "$dry" ]; then
		echo "would make the token $token"
	else
		(umask 077 && mkdir -p "$(dirname "$token")" && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$token") || exit 1
		echo "made the token $token"
	fi
fi
# shellcheck disable=SC2016
unpack='set -e
mkdir -p "$1"
cd "$1"
rm -rf ".new-$2" && mkdir ".new-$2"
cat >".new-$2/archive"
[ "$(sha256sum <".new-$2/archive" | cut -d " " -f 1)" = "$3" ] || { echo "the checksum of the copy differs" >&2; exit 1; }
tar -xzf ".new-$2/archive" -C ".new-$2" && rm ".new-$2/archive"
".new-$2/$2/bin/hetero-train" --version >/dev/null
echo "$3" >".new-$2/$2/.sha256"
rm -rf "$2" && mv ".new-$2/$2" "$2" && rmdir ".new-$2"'
# shellcheck disable=SC2016
point='set -e
cd "$1"
[ "$(readlink current)" = "$2" ] || { ln -s "$2" .current && mv -T .current current; }'
# shellcheck disable=SC2016
secret='set -e
umask 077
cat >"$1/.token"
if cmp -s "$1/.token" "$1/token"; then
	rm "$1/.token"
	echo there
else
	mv "$1/.token" "$1/token"
	echo copied
fi
chmod 600 "$1/token"'
# send HOST SCRIPT FILE ARGUMENT... runs a script on the host. FILE is its standard input.
send() {
	local host=$1 script=$2 file=$3
	shift 3
	"${ssh[@]}" "$host" "exec sh -c '${script//\'/\'\\\'\'}' sh $*" <"$file"
}
for host in "${hosts[@]}"; do
	there=${there_of[$host]}
	if [ -n "$dry" ]; then
		if [ "$there" = "$sum" ]; then echo "$host: $name is there"; else echo "$host: would copy $name to $folder"; fi
		echo "$host: would write $folder/token, mode 0600"
		continue
	fi
	if [ "$there" = "$sum" ]; then
		echo "$host: $name is there"
	elif send "$host" "$unpack" "$release" "$folder" "$name" "$sum" 2>"$room/error"; then
		echo "$host: copied $name to $folder"
	else
		fault "$host" "copying $name failed: $(tail -n 1 "$room/error")" "look at space and rights of $folder there, and repeat"
		continue
	fi
	if ! send "$host" "$point" /dev/null "$folder" "$name" 2>"$room/error" ||
		! state=$(send "$host" "$secret" "$token" "$folder" 2>"$room/error"); then
		fault "$host" "writing to $folder failed: $(tail -n 1 "$room/error")" "look at the rights of $folder there, and repeat"
		continue
	fi
	echo "$host: token $state"
done
[ $failed = 0 ] || exit 1

# Step 3: the network, and the command that starts a training.
[ -n "$master" ] || master=$("${ssh[@]}" -T -G "${hosts[0]}" | sed -n 's/^hostname //p')
program="HETERO_TOKEN_FILE=$folder/token $folder/current/bin/hetero-train"
[ -z "$ports" ] || ranges=" --set parallel.ports=$ports"
place() { # COMMAND NUMBER
	local alone=''
	[ ${#hosts[@]} -eq 1 ] || alone=" --nnodes ${#hosts[@]} --node-rank $2 --master-addr $master --master-port $port${ranges:-}"
	echo "$program $1$alone"
}
if [ -n "$dry" ]; then
	echo "would run on each host: $(place 'doctor --nproc-per-node 1' N)"
	exit 0
fi
echo "trying the network: rank 0 at $master:$port"
running=() wait_at_most=' --set parallel.rendezvous_timeout_seconds=60'
for i in "${!hosts[@]}"; do
	"${ssh[@]}" -n "${hosts[i]}" "$(place 'doctor --nproc-per-node 1' "$i")$wait_at_most" >"$room/doctor$i" 2>&1 &
	running+=($!)
done
worst=0
for i in "${!hosts[@]}"; do
	wait "${running[i]}"
	code=$?
	[ $code -le $worst ] || worst=$code
	if [ $code = 5 ]; then
		fault "${hosts[i]}" "doctor: $(grep -i error "$room/doctor$i" | tail -n 1)" \
			"let TCP connections of the other hosts to $master:$port, and to the ports of --ports, through the firewall;
         this script changes none. Or name another address of the first host with --master"
	elif [ $code -gt 1 ]; then
		fault "${hosts[i]}" "doctor ends with exit code $code: $(tail -n 1 "$room/doctor$i")" "correct this, and repeat"
	fi
done
cat "$room/doctor0"
[ $worst != 5 ] || exit 5
[ $worst = 0 ] || { echo "setup_cluster: doctor found faults (exit code $worst); see above" >&2; exit 1; }
echo
echo "Start a training from this machine:"
for i in "${!hosts[@]}"; do
	end=' &'
	[ $((i + 1)) -lt ${#hosts[@]} ] || end='; wait'
	command=(ssh)
	[ ${#ssh[@]} -le 5 ] || command+=("${ssh[@]:5}")
	echo "  ${command[*]} ${hosts[i]} '$(place "train -c $folder/current/share/hetero-train/configs/resnet50.toml" "$i")'$end"
done
