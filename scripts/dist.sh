#!/usr/bin/env bash
# Packs a release in dist/: an archive and a Python wheel, with the program, its libraries, their licences, configurations
# and documentation, and SHA256SUMS. The release runs on Linux with glibc 2.28 or newer and needs nothing else.
#
#   scripts/dist.sh [VERSION]     as root, for chroot and debootstrap; `make dist` calls it
#   CUDA=on scripts/dist.sh       a release that also trains on GPUs. There it needs NVIDIA's driver, cuBLAS and cuDNN, which
#                                 it opens at run time. CUDA_ARCHS: compute capabilities, as for the Makefile
#   ARCH=arm64 scripts/dist.sh    a release for arm64, by Debian's cross compiler
#
# Everything is compiled in a root file system of Debian 11. docs/decisions/0011-release-from-debian-11.md explains why
# its libraries nevertheless run on glibc 2.28. debootstrap makes this root in build/dist; the script keeps it
# for later builds. scripts/dist_check.sh tests the release.
#
# The build is reproducible by design. The root comes from a Debian release that does not change, and paths in the root
# do not depend on the checkout. All times are that of the commit (SOURCE_DATE_EPOCH). The version of Go is this
# machine's.
#
# The libgloo-dev of Debian 11 is too old. Gloo is therefore compiled from the source archive of a later Debian and
# linked statically. third_party/gloo.sha256 pins this archive. If it is missing in build/dist, the script downloads
# it.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

fail() { echo "dist: $*" >&2; exit 1; }
. scripts/roots.sh
release=bullseye
version=${1:-$(third_party/version.sh)}
root=$PWD/build/dist/root-$release
cross=()
cuda=off
[ "${CUDA:-auto}" != on ] || cuda=on
case ${ARCH:-} in
'')
	machine=x86_64
	packages=g++,make,cmake,python3,ca-certificates,libturbojpeg0-dev,patchelf
	triplet=$machine-linux-gnu
	places=(usr/lib/$triplet lib/$triplet)
	prefix=/usr/local # folder in the root in which Gloo is installed
	;;
arm64)
	machine=aarch64
	packages=g++-aarch64-linux-gnu,make,cmake,ca-certificates,patchelf
	triplet=$machine-linux-gnu
	root=$root-$machine
	places=(usr/$triplet/lib opt/arm64/usr/lib/$triplet)
	prefix=/opt/arm64/usr
	cross=(-D CMAKE_SYSTEM_NAME=Linux -D CMAKE_SYSTEM_PROCESSOR=$machine -D CMAKE_CXX_COMPILER=$triplet-g++)
	export GOARCH=arm64 CGO_ENABLED=1 # makes go list print the modules of this architecture
	;;
*) fail "ARCH: got '$ARCH', want arm64, or no value for x86-64" ;;
esac
name=hetero-train-$version-linux-$machine
tree=$PWD/build/dist/$name
libs=$tree/lib/hetero-train
licences=$tree/share/doc/hetero-train/licences
most=2000 # MiB of disk space that the script needs; 400 MiB stay in use for later builds

need_roots
git rev-parse --git-dir >/dev/null || fail "needs the git checkout: the release contains the files that git tracks"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
need_space build/dist $most "a release"
goroot=$(go env GOROOT)
mounts=("$goroot" usr/local/go)

# get_cuda downloads the pinned CUDA toolkit, and mounts it where the build searches.
get_cuda() {
	[ -e third_party/.cuda/PINS ] || need_space third_party 3200 "the CUDA toolkit"
	[ -e third_party/.cuda/nvidia/licences ] || rm -rf third_party/.cuda # downloaded by an earlier cuda.py
	if [ $machine = x86_64 ]; then
		python3 third_party/cuda.py
	else
		python3 third_party/cuda.py --arm64
		mounts+=("$PWD/third_party/.cuda-arm64" src/third_party/.cuda-arm64)
	fi
	mounts+=("$PWD/third_party/.cuda" src/third_party/.cuda)
}

copy_sources() {
	rm -rf "$root/src" "$root/root/.cache"
	mkdir -p "$root/src"
	git ls-files -z | tar --null --files-from=- -cf - | tar -C "$root/src" -xf -
	go mod vendor -o "$root/src/vendor"
	[ $machine = x86_64 ] || return 0
	cmp -s third_party/onednn.sha256 third_party/onednn/PINS || python3 third_party/onednn.py
	cp -a third_party/onednn "$root/src/third_party/"
}

# get_arm64 puts Debian's libturbojpeg for arm64 into /opt/arm64 of the root. Later builds use it.
get_arm64() {
	[ ! -e "$root/opt/arm64" ] || return 0
	inside "$root" sh -ec '/src/third_party/arm64.sh libturbojpeg0-dev && mv /src/third_party/.arm64 /opt/arm64' >build/dist/arm64.log 2>&1 ||
		{ tail -n 5 build/dist/arm64.log >&2; fail "cannot fetch libturbojpeg for arm64; the output is in build/dist/arm64.log"; }
}

# debian_mirror prints the address of the Debian archive from which debootstrap made the root.
debian_mirror() {
	if [ -n "$mirror" ]; then echo "$mirror"; else awk '$1 == "deb" { print $2; exit }' "$root/etc/apt/sources.list"; fi
}

# get_gloo downloads the archive of Gloo's sources, and sets the variable gloo to its path.
get_gloo() {
	local sum file url got
	read -r sum file <third_party/gloo.sha256
	url=$(debian_mirror)/pool/main/g/gloo/$file
	gloo=build/dist/$file
	if [ ! -e "$gloo" ]; then
		python3 -c 'import sys, urllib.request
open(sys.argv[2], "wb").write(urllib.request.urlopen(sys.argv[1], timeout=60).read())' "$url" "$gloo.part" 2>build/dist/gloo.log ||
			{ tail -n 1 build/dist/gloo.log >&2; fail "cannot download $url; copy the archive into build/dist"; }
		mv "$gloo.part" "$gloo"
	fi
	got=$(sha256sum "$gloo" | cut -d' ' -f1)
	[ "$got" = "$sum" ] || fail "$gloo: got SHA-256 $got, want $sum (third_party/gloo.sha256); remove the file, then run again"
}

# build_gloo installs Gloo in the root, below prefix. It compiles Gloo only if the archive or the project file has
# changed.
build_gloo() {
	local of
	get_gloo
	of=$(cat third_party/gloo.sha256 third_party/gloo/CMakeLists.txt | sha256sum)
	[ "$(cat "$root$prefix/lib/libgloo.of" 2>/dev/null)" = "$of" ] && return
	echo "dist: building Gloo"
	rm -rf "$root/tmp/gloo" "$root$prefix/include/gloo" "$root$prefix/lib/libgloo.of"
	mkdir -p "$root/tmp/gloo/source/gloo"
	tar -C "$root/tmp/gloo/source/gloo" --strip-components=1 -xf "$gloo"
	inside "$root" sh -ec 'cmake -S /src/third_party/gloo -B /tmp/gloo/build -D SOURCE=/tmp/gloo/source -D CMAKE_INSTALL_PREFIX="$@"
		cmake --build /tmp/gloo/build -j"$(nproc)" -t install' sh "$prefix" ${cross[@]+"${cross[@]}"} >build/dist/gloo.log 2>&1 ||
		{ tail -n 20 build/dist/gloo.log >&2; fail "Gloo does not build; its output is in build/dist/gloo.log"; }
	rm -rf "$root/tmp/gloo"
	echo "$of" >"$root$prefix/lib/libgloo.of"
}

build() {
	echo "dist: building $version"
	local onednn=on
	rm -rf "$tree" "$root/out"
	if [ $machine != x86_64 ]; then
		onednn=off
		cp -a "$root/opt/arm64" "$root/src/third_party/.arm64"
	fi
	inside "$root" env GOFLAGS="-mod=vendor -trimpath" GOTOOLCHAIN=local HETERO_INSTALL=off HETERO_ONEDNN=$onednn SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" \
		make -C /src --no-print-directory build install ARCH="${ARCH:-}" CUDA=$cuda ${CUDA_ARCHS:+CUDA_ARCHS="$CUDA_ARCHS"} OLD_GLIBC=on VERSION="$version" PREFIX=/ DESTDIR=/out >build/dist/build.log 2>&1 ||
		{ tail -n 20 build/dist/build.log >&2; fail "the build failed; its output is in build/dist/build.log"; }
	cp -a "$root/out" "$tree"
}

# glibc matches the names of the libraries of glibc.
glibc='^(libc|libm|libpthread|libdl|librt|libutil|libresolv|ld-linux-x86-64|ld-linux-aarch64)\.so\.'

# bundle copies all libraries that the program's libraries need directly or indirectly, except those of glibc.
bundle() {
	local more=yes file needed path
	while [ $more = yes ]; do
		more=no
		for file in "$tree/bin/hetero-train" "$libs"/*.so*; do
			for needed in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
				[[ $needed =~ $glibc ]] || [ -e "$libs/$needed" ] && continue
				path=$(cd "$root" && find "${places[@]}" -maxdepth 1 -name "$needed" -print -quit)
				[ -n "$path" ] || fail "$(basename "$file") needs $needed, which Debian $release does not have"
				cp -L "$root/$path" "$libs/$needed"
				licence_of "$path"
				more=yes
			done
		done
	done
}

# finish_files strips the program and the libraries. It sets the run path of every library, so that a library finds
# other ones in its own folder. All files get modes that do not depend on this machine.
finish_files() {
	rm -rf "$root/out" && cp -a "$tree" "$root/out"
	inside "$root" sh -ec '"$1-strip" /out/bin/hetero-train
		"$1-strip" --strip-unneeded /out/lib/hetero-train/*.so*
		for file in /out/lib/hetero-train/*.so*; do patchelf --set-rpath "\$ORIGIN" "$file"; done
		find /out -type d -exec chmod 755 {} +
		find /out -type f -exec chmod 644 {} +
		chmod 755 /out/bin/* /out/lib/hetero-train/*.so* /out/share/hetero-train/scripts/*.sh' sh $triplet
	rm -rf "$tree" && cp -a "$root/out" "$tree"
}

# row NAME VERSION LICENCE SOURCE FOLDER adds a row to the manifest. FOLDER contains the texts of the licence, below the
# folder of licences.
row() { printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$licences/MANIFEST.tsv"; }

# licence_of PATH copies the copyright file of a library's Debian package, and adds the package to the manifest.
licence_of() {
	local file=/$1 package="" number="" source="" path licence doc=$root/usr/share/doc
	if [[ $file == /opt/arm64/* ]]; then
		IFS=$'\t' read -r package number source _ < <(awk -F '\t' -v path="${file#/opt/arm64}" '$4 == path' "$root/opt/arm64/files.tsv")
		doc=$root/opt/arm64/usr/share/doc
	else
		for path in "$file" "${file#/usr}" "/usr$file"; do # dpkg may know the path before or after the merge of /usr
			package=$(inside "$root" dpkg -S "$path" 2>/dev/null | head -n 1) && break
		done
		package=${package%%:*}
		number=$(inside "$root" dpkg-query -W -f '${Version}' "$package")
		source=$(inside "$root" dpkg-query -W -f '${source:Package} ${source:Version}' "$package")
	fi
	case ${package%-arm64-cross} in
	libgomp1 | libstdc++6 | libgcc-s1) licence="GPL-3.0-or-later WITH GCC-exception-3.1" ;;
	libturbojpeg0) licence="IJG AND BSD-3-Clause AND Zlib" ;;
	*) fail "the licence of $(basename "$file") from package ${package:-unknown} is not known; add it to licence_of" ;;
	esac
	mkdir -p "$licences/$package"
	cp -L "$doc/$package/copyright" "$licences/$package/"
	row "$package" "$number" "$licence" "Debian $(sed -n 's/^VERSION_ID="\(.*\)"/\1/p' "$root/etc/os-release") source package $source" "$package"
}

# licence_in FILE… prints the SPDX names of the licences whose texts are in the files, joined by AND.
licence_in() {
	local found=()
	has() { cat "$@" | tr -s '[:space:]' ' ' | grep -qiE "$pattern"; }
	local pattern
	pattern='your choice of exactly one of the following two licenses: \* The FreeType License' has "$@" && { echo "FTL OR GPL-2.0-or-later"; return; }
	pattern='Apache License,? Version 2\.0' has "$@" && found+=(Apache-2.0)
	pattern='Mozilla Public License,? Version 2\.0' has "$@" && found+=(MPL-2.0)
	pattern='SIL Open Font License' has "$@" && found+=(OFL-1.1)
	pattern='Creative Commons Attribution 4\.0' has "$@" && found+=(CC-BY-4.0)
	pattern='free and unencumbered software released into the public domain' has "$@" && found+=(Unlicense)
	pattern='free of charge, to any person obtaining a copy of this software' has "$@" && found+=(MIT)
	if pattern='Redistribution and use in source and binary forms' has "$@"; then
		pattern='neither the names? of|names? of (its|the) contributors may' has "$@" && found+=(BSD-3-Clause) || found+=(BSD-2-Clause)
	fi
	[ ${#found[@]} -gt 0 ] || return 1
	local text
	text=$(printf ' AND %s' "${found[@]}")
	echo "${text# AND }"
}

# collect_licences collects the licences of all other parts of the release.
collect_licences() {
	local module moved dir files licence onednn=third_party/onednn
	cp LICENSE "$licences/"
	row hetero-train "$version" Apache-2.0 "this project" .
	mkdir -p "$licences"/{gloo,go,uplot,texts}
	if [ $machine = x86_64 ]; then
		mkdir -p "$licences/onednn"
		cp -r $onednn/share/doc/onednn/. "$licences/onednn/"
		row oneDNN "$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")/\1/p' $onednn/lib/cmake/dnnl/dnnl-config-version.cmake)" Apache-2.0 \
			"Python wheel $(awk '{ print $2; exit }' third_party/onednn.sha256)" onednn
	fi
	if [ $cuda = on ]; then
		mkdir -p "$licences/cuda"
		cp third_party/.cuda/nvidia/licences/nvidia_cuda_runtime/* "$licences/cuda/"
		row "CUDA Runtime" "$(sed -n 's/.*nvidia_cuda_runtime-\([0-9.]*\)-.*/\1/p' third_party/cuda.sha256)" LicenseRef-NVIDIA-CUDA-EULA \
			"Python wheel nvidia-cuda-runtime, linked into libhetero_cuda.so and libhetero_nccl.so" cuda
	fi
	cp third_party/gloo/LICENSE "$licences/gloo/"
	row Gloo "0.5.0 of $(echo "$gloo" | sed 's/.*git\(....\)\(..\)\(..\).*/\1-\2-\3/')" BSD-3-Clause "Debian source archive $(basename "$gloo"), linked into libhetero_gloo.so" gloo
	if [ -f "$goroot/LICENSE" ]; then
		cp "$goroot/LICENSE" "$licences/go/"
	else # some packages of Go, such as the wheel, lack the file above; this one has the same text
		cp "$goroot/src/cmd/vendor/golang.org/x/sys/LICENSE" "$licences/go/"
	fi
	row Go "$(head -n 1 "$goroot/VERSION")" BSD-3-Clause "the Go toolchain, linked into hetero-train" go
	cp third_party/uplot/LICENSE "$licences/uplot/"
	row uPlot "$(sed -n 's/.*"uplot": "\(.*\)".*/\1/p' profiler/dashboard/ui/package.json)" MIT "npm package uplot, in the page of the dashboard" uplot
	cp "$root"/usr/share/common-licenses/{Apache-2.0,GPL-2,GPL-3,LGPL-2.1} "$licences/texts/"
	while read -r module moved dir; do
		mkdir -p "$licences/go/$module"
		(cd "$dir" && find . -maxdepth 1 \( -iname '*licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname patents \) -exec cp -r {} "$licences/go/$module/" \;)
		mapfile -t files < <(find "$licences/go/$module" -type f)
		licence=$(licence_in ${files[@]+"${files[@]}"} </dev/null) ||
			fail "the licence of the Go module $module is not known: want a text in $dir that licence_in knows"
		row "$module" "$moved" "$licence" "Go module, linked into hetero-train" "go/$module"
	done < <(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/hetero-train | sort -u)
	chmod -R u+w "$licences"
	{ printf 'name\tversion\tlicence\tsource\tfolder of the texts\n'; sort "$licences/MANIFEST.tsv"; } >"$licences/sorted"
	mv "$licences/sorted" "$licences/MANIFEST.tsv"
}

make_root $release "$root" $packages
copy_sources
[ $cuda = off ] || get_cuda
[ $machine = x86_64 ] || get_arm64
build_gloo
build
mkdir -p "$licences"
bundle
collect_licences
cp README.md "$tree/"
finish_files
scripts/dist_check.sh --elf "$tree"
for file in dist/*.tar.gz; do # removes releases of other versions
	[[ $file == dist/hetero-train-"$version"-linux-*.tar.gz ]] || rm -rf dist
done
mkdir -p dist && rm -f dist/*$machine*
tar -C build/dist --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -9n >"dist/$name.tar.gz"
python3 scripts/wheel.py "$tree" "$version" manylinux_2_28_$machine dist
(cd dist && rm -f SHA256SUMS && sha256sum -- * >../build/dist/SHA256SUMS && mv ../build/dist/SHA256SUMS .)
rm -rf "$tree" "$root"/{src,out,root/.cache}
(cd dist && for file in *; do echo "dist: dist/$file, $((($(stat -c %s "$file") + 1048575) >> 20)) MiB"; done)
