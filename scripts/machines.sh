#!/usr/bin/env bash
# Installs the program as its users do, in root file systems of Debian. Trains, and prints a table of the results.
#
#   scripts/machines.sh [--write] [--any-release] [ROW…]     as root, for chroot and debootstrap
#
# A row is SYSTEM/USER/FROM/COMPILER. Without arguments, the script runs all rows; patterns select some:
#   scripts/machines.sh 'trixie/*' '*/user/wheel/*'
#   SYSTEM     bullseye (Debian 11), bookworm (12), trixie (13) or sid
#   USER       root or user (an ordinary user)
#   FROM       source: git clone and make; release: the archive of `make dist`; wheel: pip install
#   COMPILER   gcc or clang for source, none for the others
#
# Each row starts from the same small root. For a release, the root contains only the base system. For a wheel, it also
# contains pip, and for a source the programs that docs/install.md requires.
# The changes of a row are in an overlay. Its size is the disk space of the installation: packages, build and program.
# The seconds of an installation depend on the load of the machine and on its network, but its CPU time hardly does.
# If dist/ has no release of this commit, the script first runs `make dist`. With --any-release, it uses the release in
# dist/.
#
# Results are in build/machines/results.tsv; a row replaces its earlier result. The script fails if a row fails, or if
# the losses of two rows differ. At its end, it prints a table: all rows that this checkout has run, and the rows of
# other checkouts in docs/install.md. --write writes this table into docs/install.md (scripts/machines_table.py).
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

fail() { echo "machines: $*" >&2; exit 1; }
. scripts/roots.sh
place=$PWD/build/machines
results=$place/results.tsv
version=$(third_party/version.sh)
release=''
write='' any=''
while :; do
	case ${1:-} in
	--write) write=--write ;;
	--any-release) any=yes ;;
	-*) fail "got $1, want --write, --any-release, or a row" ;;
	*) break ;;
	esac
	shift
done
patterns=("$@")
[ $# -gt 0 ] || patterns=('*')

rows=()
for system in bullseye bookworm trixie sid; do
	for user in root user; do
		for how in release/none wheel/none source/gcc source/clang; do
			for pattern in "${patterns[@]}"; do
				# shellcheck disable=SC2053 # a pattern
				[[ $system/$user/$how == $pattern ]] && { rows+=("$system/$user/$how"); break; }
			done
		done
	done
done
[ ${#rows[@]} -gt 0 ] || fail "no row matches '${patterns[*]}'; a row is SYSTEM/USER/FROM/COMPILER, as trixie/root/release/none"

# before FROM/COMPILER USER prints the packages that this way of installation needs before its first command
# (docs/install.md).
before() {
	case $1/$2 in
	release/*) ;;
	wheel/*) echo python3-venv ;;
	source/gcc/root) echo git make ca-certificates ;;
	source/gcc/user) echo git make ca-certificates g++ python3-venv ;;
	source/clang/root) echo git make ca-certificates clang libomp-dev ;;
	source/clang/user) echo git make ca-certificates clang libomp-dev python3-venv ;;
	esac
}

# steps is the script of a row. It installs the program, trains, and writes the seconds and the loss to /result. $1 is
# the way of installation, and $2 is the compiler.
steps='
set -e
cd
now() { cut -d" " -f1 /proc/uptime; }
start=$(now)
case $1 in
release)
	tar -xf /mnt/dist/hetero-train-*-linux-x86_64.tar.gz
	program=$(echo "$HOME"/hetero-train-*/bin/hetero-train)
	share=$(echo "$HOME"/hetero-train-*/share/hetero-train)
	;;
wheel)
	python3 -m venv env
	env/bin/pip install --quiet --no-index /mnt/dist/hetero_train-*_x86_64.whl
	program=$HOME/env/bin/hetero-train
	share=$HOME/env/share/hetero-train
	;;
source)
	git clone --quiet /mnt/source/bundle hetero-train
	cd hetero-train
	case $2 in clang) make CC=clang CXX=clang++ ;; *) make ;; esac
	if [ -e build/build.log ] && grep "warning:" build/build.log; then echo "the C++ code has warnings (above)"; exit 1; fi
	program=./hetero-train
	share=.
	;;
esac
"$program" version
ready=$(now)
times >/tmp/times # the second line contains user and system time of all ended processes, such as 1m2.34s
"$program" -c "$share/configs/resnet50.toml" --set data.dataset=synthetic_image --set data.num_samples=128 --set data.batch_size=32 --set train.epochs=1 --set optimizer.lr=0.01 \
	--set train.precision=f32 --set device.threads=2 --set experiment.output_dir="$HOME/runs"
end=$(now)
loss=$(sed -n "s/.*\"final_train_loss\": *\([0-9.]*\).*/\1/p" "$HOME/runs/resnet50/results/result.json")
[ -n "$loss" ]
cpu=$(sed -n "2s/[ms]/ /gp" /tmp/times | awk "{ print 60 * \$1 + \$2 + 60 * \$3 + \$4 }")
echo "$start $ready $end $loss $cpu" >/tmp/result
'

# try ROW runs a row and stores its result.
try() {
	local system user from compiler from_version start ready end loss cpu megabytes at=$place/row who=() trust=()
	IFS=/ read -r system user from compiler <<<"$1"
	mounts=()
	make_root "$system" "$place/root-$system"
	# shellcheck disable=SC2046 # words
	layer "$system" $(before "$from/$compiler" "$user")
	rm -rf "$at" "$at.upper" "$at.work"
	case $from in
	source) mounts=("$place/source" mnt/source) ;;
	*) mounts=("$PWD/dist" mnt/dist) ;;
	esac
	mkdir -p "$at.upper/tmp" "$at.upper/etc" && chmod 1777 "$at.upper/tmp"
	echo "$steps" >"$at.upper/tmp/steps"
	cp /etc/resolv.conf "$at.upper/etc/resolv.conf"
	if [ "$from" = source ] && [ -e /etc/ssl/certs/ca-certificates.crt ]; then # copies the certificates of this machine
		mounts+=(/etc/ssl/certs etc/ssl/certs)
		trust=(env PIP_CERT=/etc/ssl/certs/ca-certificates.crt)
	fi
	[ "$user" = root ] || who=(setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/user USER=user)
	if ! inside "$at" sh -ec 'useradd --create-home --uid 1000 --shell /bin/sh user; exec "$@"' sh \
		${who[@]+"${who[@]}"} ${trust[@]+"${trust[@]}"} sh /tmp/steps "$from" "$compiler" >"$place/log" 2>&1 </dev/null; then
		tail -n 15 "$place/log" >&2
		mv "$place/log" "$place/failed-${1//\//-}.log"
		echo "machines: $1: FAILED; the output is in $place/failed-${1//\//-}.log" >&2
		return 1
	fi
	[ "$from" = source ] && from_version=$version || from_version=$release
	read -r start ready end loss cpu <"$at.upper/tmp/result"
	megabytes=$(du -sm --exclude=runs "$at.upper" | cut -f1)
	rm -rf "$at" "$at.upper" "$at.work"
	{ [ ! -e "$results" ] || awk -F '\t' -v row="$1" '$1 != row' "$results"; } >"$results.new"
	awk -v row="$1" -v start="$start" -v ready="$ready" -v end="$end" -v megabytes="$megabytes" -v loss="$loss" -v version="$from_version" -v day="$(date +%F)" -v cores="$(nproc)" -v cpu="$cpu" \
		'BEGIN { OFS = "\t"; print row, sprintf("%.0f", ready - start), megabytes, sprintf("%.0f", end - ready), loss, version, day, cores, sprintf("%.0f", cpu) }' </dev/null >>"$results.new"
	mv "$results.new" "$results"
	echo "machines: $1: $(tail -n 1 "$results" | awk -F '\t' '{ printf "installed in %s s (CPU time %s s), %s MB; trained in %s s, loss %s", $2, $9, $3, $4, $5 }')"
}

need_roots
need_space "$place" 4000 "this table"
case " ${rows[*]}" in *source*)
	mkdir -p "$place/source"
	# shellcheck disable=SC2046 # no word if HEAD is no branch
	git bundle create --quiet "$place/source/bundle" HEAD $(git branch --show-current)
	;;
esac
case " ${rows[*]}" in *release* | *wheel*)
	if [ -z "$any" ]; then
		[ -e "dist/hetero-train-$version-linux-x86_64.tar.gz" ] || scripts/dist.sh "$version"
	fi
	release=$(basename dist/hetero-train-*-linux-x86_64.tar.gz -linux-x86_64.tar.gz)
	release=${release#hetero-train-}
	[ -e "dist/hetero-train-$release-linux-x86_64.tar.gz" ] || fail "want one release in dist/; run: make dist"
	;;
esac
failed=()
for row in "${rows[@]}"; do
	try "$row" || failed+=("$row")
done
[ -e "$results" ] || fail "all rows failed: ${failed[*]}"
scripts/machines_table.py "$results" docs/install.md $write
[ ${#failed[@]} = 0 ] || fail "these rows failed: ${failed[*]}"
[ "$(cut -f5 "$results" | sort -u | wc -l)" = 1 ] || fail "the losses of the rows differ, want equal losses on one machine"
