#!/usr/bin/env bash
# Compiles the native libraries of this commit with many compilers, in root file systems of Debian. Fails if a compiler
# prints a warning or an error. Does not compile the CUDA code and Gloo's own code.
#
#   scripts/compilers.sh [SYSTEM/COMPILER…]     as root, for chroot and debootstrap
#
# Without arguments, the script runs all compilers, with about two minutes of CPU time each. Patterns select some:
#   scripts/compilers.sh 'bookworm/*' '*/clang-19'
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

fail() { echo "compilers: $*" >&2; exit 1; }
. scripts/roots.sh
place=$PWD/build/machines
source=$place/compilers
all=(bullseye/g++-10 bullseye/clang-11 bookworm/g++-11 bookworm/g++-12 bookworm/clang-14 bookworm/clang-15 bookworm/clang-16
	trixie/g++-13 trixie/g++-14 trixie/clang-17 trixie/clang-18 trixie/clang-19 sid/g++-15 sid/g++-16)
patterns=("$@")
[ $# -gt 0 ] || patterns=('*')
some=()
for one in "${all[@]}"; do
	for pattern in "${patterns[@]}"; do
		# shellcheck disable=SC2053 # a pattern
		[[ $one == $pattern ]] && { some+=("$one"); break; }
	done
done
[ ${#some[@]} -gt 0 ] || fail "no compiler matches '${patterns[*]}'; want some of: ${all[*]}"

# try SYSTEM/COMPILER compiles the libraries with one compiler.
try() {
	local system=${1%/*} compiler=${1#*/} at=$place/compiler packages=(make cmake libturbojpeg0-dev)
	packages+=("$compiler")
	[[ $compiler != clang-* ]] || packages+=("libomp-${compiler#clang-}-dev")
	mounts=()
	make_root "$system" "$place/root-$system"
	layer "$system" "${packages[@]}"
	mounts=("$source" mnt/source "$PWD/third_party/onednn" mnt/onednn)
	rm -rf "$at" "$at.upper" "$at.work"
	mkdir -p "$at.upper/tmp" && chmod 1777 "$at.upper/tmp"
	if ! inside "$at" sh -ec 'cmake -S /mnt/source -B /tmp/build -D CMAKE_CXX_COMPILER="$1" -D HETERO_ONEDNN_DIR=/mnt/onednn -D HETERO_ONEDNN=on -D HETERO_CUDA=off
		cmake --build /tmp/build -j"$(nproc)"
		"$1" --version | sed -n "1s/^/compiler: /p"
		cat /tmp/build/parts.txt' sh "${compiler/clang/clang++}" >"$place/compiler.log" 2>&1 </dev/null; then
		mv "$place/compiler.log" "$place/failed-${1//\//-}.log"
		grep -iE -B 1 -A 5 'error|\*\*\*' "$place/failed-${1//\//-}.log" | head -n 30 >&2
		echo "compilers: $1: FAILED; the output is in $place/failed-${1//\//-}.log" >&2
		return 1
	fi
	grep -q '^cpu: on' "$place/compiler.log" || { cat "$at.upper/tmp/build/parts.txt" >&2; echo "compilers: $1: the CPU device was not compiled" >&2; return 1; }
	rm -rf "$at" "$at.upper" "$at.work"
	if grep -A 5 'warning:' "$place/compiler.log" >&2; then
		echo "compilers: $1: WARNINGS (above)" >&2
		return 1
	fi
	echo "compilers: $1: no warning, $(sed -n 's/^compiler: //p' "$place/compiler.log")"
}

need_roots
need_space "$place" 3000 "the roots of these compilers"
cmp -s third_party/onednn.sha256 third_party/onednn/PINS || python3 third_party/onednn.py
rm -rf "$source" && mkdir -p "$source"
git archive HEAD | tar -C "$source" -xf -
failed=()
for one in "${some[@]}"; do
	try "$one" || failed+=("$one")
done
[ ${#failed[@]} = 0 ] || fail "these compilers failed: ${failed[*]}"
