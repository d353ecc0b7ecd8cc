# Functions for root file systems of Debian, which debootstrap creates. dist.sh, dist_check.sh, machines.sh and
# compilers.sh source this file. They must define fail, which prints a message and ends the script.
#
#   HETERO_DEBIAN_MIRROR   address of the Debian archive; empty: the default of debootstrap

mirror=${HETERO_DEBIAN_MIRROR:-}

# need_roots fails if this user or this machine cannot create root file systems.
need_roots() {
	[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "got $(uname -s)-$(uname -m), want Linux-x86_64"
	[ "$(id -u)" = 0 ] || fail "needs root, for chroot and debootstrap; run it with sudo"
	command -v debootstrap >/dev/null || fail "debootstrap is missing; run: apt-get install debootstrap"
}

# need_space FOLDER MIB WHAT fails if the disk of the folder has less than MIB MiB of free space.
need_space() {
	local free
	mkdir -p "$1"
	free=$(df --output=avail -BM "$1" | tail -n 1 | tr -dc 0-9)
	[ "$free" -ge "$2" ] || fail "$3 takes $2 MiB in $1, and its disk has $free MiB free; free some space, then run again"
}

# make_root RELEASE FOLDER [PACKAGE,PACKAGE…] creates a minimal root with these packages, unless FOLDER already contains
# one. It removes files that programs do not need: downloaded packages, manuals and translations. It keeps copyright
# files.
make_root() {
	local log=$2.log
	[ "$(cat "$2/.ready" 2>/dev/null)" = "$1 ${3:-}" ] && return
	echo "${0##*/}: making a root of Debian $1 in $2"
	rm -rf "$2"
	mkdir -p "$2"
	# Roots can contain Go sources, and Go's ./... skips folders with a go.mod.
	echo 'module roots' >"$(dirname "$2")/go.mod"
	debootstrap --variant=minbase ${3:+--include="$3"} "$1" "$2" ${mirror:+"$mirror"} >"$log" 2>&1 ||
		{ tail -n 5 "$log" >&2; fail "debootstrap $1 failed; its output is in $log"; }
	slim_root "$2"
	echo 'Acquire::Check-Valid-Until "false";' >"$2/etc/apt/apt.conf.d/90old" # the lists of an old mirror have expired
	echo "$1 ${3:-}" >"$2/.ready"
}

# slim_root FOLDER removes files that no program in the root needs.
slim_root() {
	find "$1/var/cache/apt" "$1/var/lib/apt/lists" "$1/usr/share/man" "$1/usr/share/info" "$1/usr/share/locale" -type f -delete
	find "$1/usr/share/doc" -type f ! -name copyright -delete
}

# inside ROOT COMMAND… runs a command in a root, with /proc and /dev/shm. The array mounts contains pairs SOURCE TARGET,
# which are mounted read-only.
# If lower is set, ROOT must be an empty folder. The command then sees the folders of lower there (the topmost first,
# separated by colons), and its changes go to ROOT.upper. All mounts end with the command.
mounts=()
lower=
inside() {
	local root=$1
	shift
	[ -z "$lower" ] || mkdir -p "$root" "$root.upper" "$root.work"
	lower=$lower unshare --mount bash -euc 'root=$1
		shift
		[ -z "$lower" ] || mount -t overlay overlay -o "lowerdir=$lower,upperdir=$root.upper,workdir=$root.work" "$root"
		mount -t proc proc "$root/proc"
		mkdir -p "$root/dev/shm"
		mount -t tmpfs tmpfs "$root/dev/shm"
		while [ "$1" != -- ]; do
			mkdir -p "$root/$2"
			mount --bind "$1" "$root/$2"
			mount -o remount,bind,ro "$root/$2"
			shift 2
		done
		shift
		exec chroot "$root" "$@"' bash "$root" ${mounts[@]+"${mounts[@]}"} -- \
		env -i PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
}

# layer SYSTEM PACKAGE… installs packages in an overlay over the root of a system, $place/root-SYSTEM. It sets lower to
# the folders of overlay and root, for function inside.
layer() {
	local system=$1 at
	shift
	lower=$place/root-$system
	[ $# -gt 0 ] || return 0
	at=$place/layer-$system-$(echo "$*" | sha256sum | cut -c1-12)
	if [ ! -e "$at/ready" ]; then
		rm -rf "$at" && mkdir -p "$at"
		inside "$at/root" sh -ec 'export DEBIAN_FRONTEND=noninteractive
			apt-get update && apt-get install -y --no-install-recommends "$@" && apt-get clean && rm -rf /var/lib/apt/lists/*' sh "$@" >"$at/log" 2>&1 ||
			{ tail -n 5 "$at/log" >&2; fail "Debian $system: cannot install $*; the output is in $at/log"; }
		touch "$at/ready"
	fi
	lower=$at/root.upper:$lower
}
