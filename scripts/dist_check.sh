#!/usr/bin/env bash
# Checks a release that scripts/dist.sh has packed.
#
#   scripts/dist_check.sh --elf FOLDER              every program and library in the folder needs at most glibc 2.28 and only
#                                                   libraries of glibc or of the folder, in versions that these define
#   scripts/dist_check.sh --wheel WHEEL             pip installs the wheel in an empty environment; the program trains there
#                                                   with an installed configuration, and pip removes all files again
#   scripts/dist_check.sh ARCHIVE [RELEASE…]        the first check, then runs the release in a root of each Debian release
#                                                   (default: bullseye trixie): lists the devices, and trains with two
#                                                   ranks over shared memory and over Gloo. The losses must be equal.
#                                                   Needs root. The script keeps the roots in build/dist
#   scripts/dist_check.sh ARCHIVE-aarch64.tar.gz    the first check, then runs the release under QEMU with the glibc of
#                                                   Debian 11, which dist.sh has installed: lists the devices, and trains
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "dist_check: $*" >&2; exit 1; }
. scripts/roots.sh
newest=2.28 # the glibc of RHEL 8, Debian 10 and Ubuntu 18.10
glibc='^(libc|libm|libpthread|libdl|librt|libutil|libresolv|ld-linux-x86-64|ld-linux-aarch64)\.so\.'

# versions_needed FILE prints LIBRARY VERSION for each version of a library that the file needs.
versions_needed() {
	readelf -VW "$1" | awk '/^Version / { needs = /needs section/ }
		needs && /File: / { sub(/.*File: /, ""); library = $1 }
		needs && /Name: / { sub(/.*Name: /, ""); print library, $1 }'
}

# versions_defined FILE prints each version that the library defines.
versions_defined() {
	readelf -VW "$1" | awk '/^Version / { defines = /definition section/ }
		defines && /Name: / { sub(/.*Name: /, ""); print $1 }'
}

# symbols_of FILE VERSION prints the symbols of this version that the file needs.
symbols_of() { readelf --dyn-syms -W "$1" | awk -v at="@$2" '$7 == "UND" && index($8, at) && substr($8, index($8, at)) == at { printf " %s", substr($8, 1, index($8, at) - 1) }'; }

# check_elf FOLDER implements --elf.
check_elf() {
	local file needed library version count=0 bad=0
	complain() { echo "dist_check: $*" >&2; bad=1; }
	while read -r file; do
		readelf -h "$file" >/dev/null 2>&1 || continue
		count=$((count + 1))
		for needed in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
			[[ $needed =~ $glibc ]] || [ -e "$1/lib/hetero-train/$needed" ] ||
				complain "${file#"$1"/} needs $needed, which is neither glibc's nor in lib/hetero-train"
		done
		case $file in
		"$1"/lib/*) readelf -d "$file" | grep -q 'RUNPATH.*\[$ORIGIN\]' ||
			complain "${file#"$1"/} does not search its own folder for libraries: want the run path \$ORIGIN" ;;
		esac
		while read -r library version; do
			if [[ $library =~ $glibc ]]; then
				[ "$(printf '%s\n' "${version#GLIBC_}" $newest | sort -V | tail -n 1)" = $newest ] ||
					complain "${file#"$1"/} needs glibc ${version#GLIBC_}, want $newest or older:$(symbols_of "$file" "$version") (third_party/glibc replaces such functions)"
			elif [ -e "$1/lib/hetero-train/$library" ]; then
				versions_defined "$1/lib/hetero-train/$library" | grep -qxF "$version" ||
					complain "${file#"$1"/} needs $version of $library, which lib/hetero-train/$library does not define"
			fi
		done < <(versions_needed "$file")
	done < <(find "$1" -type f)
	[ $count -ge 5 ] || fail "found $count programs and libraries in $1, want at least 5"
	[ $bad = 0 ] || exit 1
	echo "dist_check: $count programs and libraries need at most glibc $newest and no other libraries"
}

# check_wheel WHEEL implements --wheel.
check_wheel() {
	local wheel prefix=$folder/venv left
	wheel=$(realpath "$1")
	python3 -m venv "$prefix" && find "$prefix" -type f | sort >"$folder/before"
	"$prefix/bin/python" -m pip install --quiet --disable-pip-version-check --no-index "$wheel"
	(
		cd "$folder"
		env -i PATH="$prefix/bin:/usr/bin:/bin" HOME="$folder" sh -ec 'hetero-train version
			hetero-train -c "$1/share/hetero-train/configs/resnet50.toml" --set data.dataset=synthetic_image --set data.num_samples=128 \
				--set train.epochs=1 >train.txt 2>&1 || { cat train.txt; exit 1; }
			grep final_train_loss experiments/resnet50/results/result.json
			if hetero-train version | grep -E "^(cpu device|shared memory|gloo|jpeg) .*missing"; then exit 1; fi' sh "$prefix"
	) || fail "the program of $1 does not train"
	"$prefix/bin/python" -m pip uninstall --quiet --yes hetero-train
	left=$(find "$prefix" -type f ! -name '*.pyc' | sort | comm -13 "$folder/before" -)
	[ -z "$left" ] || fail "pip uninstall left these files: $left"
	echo "dist_check: pip installs and removes $(basename "$1"), and its program trains"
}

# check_gpu TREE PROGRAM… checks a release that contains the GPU device. The roots contain no driver, so the release
# must report this. The function is a string, because a shell in a root executes it.
check_gpu='check_gpu() {
	[ -e "$1/lib/hetero-train/libhetero_cuda.so" ] || return 0
	shift
	"$@" devices >devices.txt
	grep -q "^cuda: no driver" devices.txt || { cat devices.txt; echo "devices does not say that there is no driver"; exit 1; }
	code=0
	"$@" train --model simple_cnn --dataset synthetic_image --set device.kind=cuda >cuda.txt 2>&1 || code=$?
	grep -q "cuda: no driver" cuda.txt && [ $code = 2 ] || { cat cuda.txt; echo "device.kind=cuda: got exit code $code, want 2 and that there is no driver"; exit 1; }
	echo "device.kind=cuda: $(grep -m 1 "no driver" cuda.txt)"
}
'

# check_release RELEASE ARCHIVE checks the archive in a root of this Debian release.
check_release() {
	local root=$PWD/build/dist/check-$1
	need_space build/dist 600 "a root of Debian $1"
	make_root "$1" "$root"
	rm -rf "$root/opt/dist" && mkdir -p "$root/opt/dist"
	tar -C "$root/opt/dist" --strip-components=1 -xf "$2"
	inside "$root" env PATH=/opt/dist/bin:/usr/bin:/bin sh -ec "$check_gpu"'
		cd "$(mktemp -d)"
		hetero-train version
		hetero-train devices
		check_gpu /opt/dist hetero-train
		# With off, the ranks of one machine use Gloo, or fail if Gloo does not work. The losses must be equal with auto
		# and off.
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
	rm -rf "$root/opt/dist"
	echo "dist_check: runs on Debian $1, $(chroot "$root" ldd --version | head -n 1 | grep -o 'GLIBC [0-9.]*')"
}

# check_arm64 FOLDER checks a release for arm64. It trains with one rank, because QEMU's user mode cannot start further
# processes of the program.
check_arm64() {
	local glibc_of=$PWD/build/dist/root-bullseye-aarch64/usr/aarch64-linux-gnu
	command -v qemu-aarch64 >/dev/null || fail "qemu-aarch64 is missing; run: apt-get install qemu-user"
	[ -e "$glibc_of/lib/libc.so.6" ] || fail "$glibc_of has no glibc for arm64; run: make dist ARCH=arm64"
	# Go preempts goroutines by signals, which QEMU does not always deliver correctly.
	local run=(qemu-aarch64 -cpu neoverse-n1 -L "$glibc_of" -E GODEBUG=asyncpreemptoff=1 "$1/bin/hetero-train")
	(
		cd "$folder"
		"${run[@]}" version >version.txt || exit 1
		cat version.txt
		if grep -E "^(cpu device|shared memory|gloo|jpeg) .*missing" version.txt; then exit 1; fi
		"${run[@]}" devices || exit 1
		eval "$check_gpu"
		check_gpu "$1" "${run[@]}"
		"${run[@]}" train --model simple_cnn --dataset synthetic_image --num-samples 64 --batch-size 16 --epochs 1 --experiment-name check \
			--set device.kind=cpu --set train.precision=f32 --set model.channels="[8, 16]" >train.txt 2>&1 || { cat train.txt; exit 1; }
		grep final_train_loss experiments/check/results/result.json
	) || fail "the release does not run under QEMU"
	echo "dist_check: runs on arm64 under QEMU, glibc of Debian 11"
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
case ${1:-} in
--elf)
	check_elf "${2:?want the folder}"
	;;
--wheel)
	check_wheel "${2:?want the wheel}"
	;;
'' | -*)
	fail "got '${*}', want --elf FOLDER, --wheel WHEEL, or ARCHIVE [RELEASE…]"
	;;
*)
	archive=$(realpath "$1")
	shift
	[ -f "$archive" ] || fail "$archive not found"
	if [[ $archive == *-aarch64.tar.gz ]]; then
		mkdir "$folder/release" && tar -C "$folder/release" --strip-components=1 -xf "$archive"
		check_elf "$folder/release"
		check_arm64 "$folder/release"
		exit
	fi
	need_roots
	tar -C "$folder" --strip-components=1 -xf "$archive"
	check_elf "$folder"
	for release in "${@:-bullseye trixie}"; do
		for one in $release; do check_release "$one" "$archive"; done
	done
	;;
esac
