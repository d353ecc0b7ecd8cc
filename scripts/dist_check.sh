#!/usr/bin/env bash
# Checks a release that scripts/dist.sh has packed.
#
#   scripts/dist_check.sh --elf FOLDER              every program and library in the folder needs at most glibc 2.31, and only
#                                                   libraries of glibc or of the folder
#   scripts/dist_check.sh TARBALL [RELEASE…]        the same check, then runs the release in a root of each Debian release
#                                                   (default: bullseye trixie): lists the devices, and trains with two
#                                                   ranks over shared memory and over Gloo. The losses must be equal.
#                                                   Needs root. The script keeps the roots in build/dist
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "dist_check: $*" >&2; exit 1; }
mirror=${HETERO_DEBIAN_MIRROR:-} # empty: the default of debootstrap
newest=2.31 # version of glibc in Debian 11 and Ubuntu 20.04
glibc='^(libc|libm|libpthread|libdl|librt|libutil|libresolv|ld-linux-x86-64)\.so\.'

# check_elf FOLDER
check_elf() {
	local file needed version count=0 bad=0
	while read -r file; do
		readelf -h "$file" >/dev/null 2>&1 || continue
		count=$((count + 1))
		for needed in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
			[[ $needed =~ $glibc ]] || [ -e "$1/lib/hetero-train/$needed" ] ||
				{ echo "dist_check: ${file#"$1"/} needs $needed, which is neither glibc's nor in lib/hetero-train" >&2; bad=1; }
		done
		case $file in
		"$1"/lib/*) readelf -d "$file" | grep -q 'RUNPATH.*\[$ORIGIN\]' ||
			{ echo "dist_check: ${file#"$1"/} does not search its own folder for libraries: want the run path \$ORIGIN" >&2; bad=1; } ;;
		esac
		version=$(readelf -VW "$file" | grep -o 'Name: GLIBC_[0-9.]*' | sed 's/.*_//' | sort -V | tail -n 1)
		[ "$(printf '%s\n' "${version:-0}" $newest | sort -V | tail -n 1)" = $newest ] ||
			{ echo "dist_check: ${file#"$1"/} needs glibc $version, want $newest or older" >&2; bad=1; }
	done < <(find "$1" -type f)
	[ $count -ge 5 ] || fail "found $count programs and libraries in $1, want at least 5"
	[ $bad = 0 ] || exit 1
	echo "dist_check: $count programs and libraries need at most glibc $newest and no other libraries"
}

# check_release RELEASE TARBALL
check_release() {
	local root=$PWD/build/dist/check-$1
	if [ ! -e "$root/.ready" ]; then
		echo "dist_check: making a root of Debian $1 in $root"
		rm -rf "$root"
		mkdir -p build/dist && echo 'module roots' >build/dist/go.mod # excludes the roots from Go's ./...
		debootstrap --variant=minbase "$1" "$root" ${mirror:+"$mirror"} >build/dist/debootstrap.log 2>&1 ||
			{ tail -n 5 build/dist/debootstrap.log >&2; fail "debootstrap $1 failed; its output is in build/dist/debootstrap.log"; }
		touch "$root/.ready"
	fi
	rm -rf "$root/opt/dist" && mkdir -p "$root/opt/dist"
	tar -C "$root/opt/dist" --strip-components=1 -xf "$2"
	unshare --mount sh -c 'mount -t proc proc "$1/proc" && exec chroot "$1" env -i PATH=/opt/dist/bin:/usr/bin:/bin HOME=/root sh -ec "$2"' sh "$root" '
		cd "$(mktemp -d)"
		hetero-train version
		hetero-train devices
		# With off, the ranks of one machine use Gloo, or fail if Gloo does not work. Losses must be equal with both.
		for memory in auto off; do
			hetero-train train --model simple_cnn --dataset synthetic_image --num-samples 256 --batch-size 16 --epochs 2 \
				--experiment-name "check-$memory" --nproc-per-node 2 --set parallel.shared_memory=$memory --set train.precision=f32 \
				--set model.channels="[8, 16]" --set balance.fixed_shares="[12, 20]" >train.txt 2>&1 || { cat train.txt; exit 1; }
			grep "\"final_train_loss\"" "experiments/check-$memory/results/result.json" >"loss-$memory.txt"
		done
		cat loss-auto.txt loss-off.txt
		cmp -s loss-auto.txt loss-off.txt || { echo "the losses over shared memory and over Gloo (above) differ, want equal losses"; exit 1; }
		if hetero-train version | grep -E "^(cpu device|shared memory|gloo|jpeg) .*missing"; then exit 1; fi' ||
		fail "the release does not run on Debian $1"
	echo "dist_check: runs on Debian $1, $(chroot "$root" ldd --version | head -n 1 | grep -o 'GLIBC [0-9.]*')"
}

case ${1:-} in
--elf)
	check_elf "${2:?want the folder}"
	;;
'' | -*)
	fail "got '${*}', want --elf FOLDER, or TARBALL [RELEASE…]"
	;;
*)
	tarball=$(realpath "$1")
	shift
	[ -f "$tarball" ] || fail "$tarball not found"
	[ "$(id -u)" = 0 ] || fail "needs root, for chroot"
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	tar -C "$folder" --strip-components=1 -xf "$tarball"
	check_elf "$folder"
	for release in "${@:-bullseye trixie}"; do
		for one in $release; do check_release "$one" "$tarball"; done
	done
	;;
esac
