#!/usr/bin/env bash
# Packs a release: build/hetero-train-VERSION-linux-x86_64.tar.gz with the program, its libraries, their licences,
# configurations and documentation. The release runs on x86-64 Linux with glibc 2.31 or newer and needs nothing else.
#
#   scripts/dist.sh [VERSION]     as root, for chroot and debootstrap; `make dist` calls it
#
# Everything is compiled in a root file system of Debian 11, because its glibc 2.31 is old enough. debootstrap creates
# this root in build/dist/bullseye. The script keeps it for later builds. scripts/dist_check.sh tests the tarball.
#
# The libgloo-dev of Debian 11 is too old. Gloo is therefore compiled from the source archive of a later Debian and
# linked statically. third_party/gloo.sha256 pins this archive. If it is missing in build/dist, the script downloads
# it.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "dist: $*" >&2; exit 1; }
version=${1:-$(git describe --tags --always --dirty)}
mirror=${HETERO_DEBIAN_MIRROR:-} # empty: the default of debootstrap
release=bullseye
root=$PWD/build/dist/$release
name=hetero-train-$version-linux-x86_64
tree=build/dist/$name
libs=$tree/lib/hetero-train
licences=$tree/share/doc/hetero-train/licences
packages=g++,make,cmake,python3,ca-certificates,libturbojpeg0-dev,patchelf

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "got $(uname -s)-$(uname -m), want Linux-x86_64"
[ "$(id -u)" = 0 ] || fail "needs root, for chroot: sudo make dist"
command -v debootstrap >/dev/null || fail "debootstrap is missing; run: apt-get install debootstrap"
git rev-parse --git-dir >/dev/null || fail "needs the git checkout: the tarball contains the files that git tracks"

# inside COMMAND… runs the command in the root. It mounts /proc, which Go needs, until the command ends.
inside() {
	unshare --mount sh -c 'mount -t proc proc "$1/proc" && root=$1 && shift && exec chroot "$root" "$@"' sh "$root" \
		env -i PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
}

make_root() {
	[ -e "$root/.ready" ] && return
	echo "dist: making a root of Debian $release in $root"
	rm -rf "$root"
	debootstrap --variant=minbase --include=$packages $release "$root" ${mirror:+"$mirror"} >build/dist/debootstrap.log 2>&1 ||
		{ tail -n 5 build/dist/debootstrap.log >&2; fail "debootstrap $release failed; its output is in build/dist/debootstrap.log"; }
	touch "$root/.ready"
}

# Go's ./... skips folders with a go.mod. The roots contain Go sources, so this folder gets a go.mod.
mkdir -p build/dist
echo 'module roots' >build/dist/go.mod

copy_sources() {
	[ "$(cat "$root/usr/local/go/VERSION" 2>/dev/null)" = "$(cat "$(go env GOROOT)/VERSION")" ] ||
		{ rm -rf "$root/usr/local/go"; cp -a "$(go env GOROOT)" "$root/usr/local/go"; }
	# Replace the old sources by the tracked files. Keep build/ in the root, so that a second build is fast.
	mkdir -p "$root/src"
	find "$root/src" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
	git ls-files -z | tar --null --files-from=- -cf - | tar -C "$root/src" -xf -
	go mod vendor -o "$root/src/vendor"
	cmp -s third_party/onednn.sha256 third_party/onednn/PINS || python3 third_party/onednn.py
	cp -a third_party/onednn "$root/src/third_party/"
}

# debian_mirror prints the address of the Debian archive from which debootstrap made the root.
debian_mirror() {
	if [ -n "$mirror" ]; then echo "$mirror"; else awk '$1 == "deb" { print $2; exit }' "$root/etc/apt/sources.list"; fi
}

# get_gloo downloads the archive of Gloo's sources, and sets gloo to its path.
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

# build_gloo installs Gloo in /usr/local of the root. It compiles Gloo only if the archive or the project file has
# changed.
build_gloo() {
	local of
	get_gloo
	of=$(cat third_party/gloo.sha256 third_party/gloo/CMakeLists.txt | sha256sum)
	[ "$(cat "$root/usr/local/lib/libgloo.of" 2>/dev/null)" = "$of" ] && return
	echo "dist: building Gloo"
	rm -rf "$root/tmp/gloo" "$root/usr/local/include/gloo" "$root/usr/local/lib/libgloo.of"
	mkdir -p "$root/tmp/gloo/source/gloo"
	tar -C "$root/tmp/gloo/source/gloo" --strip-components=1 -xf "$gloo"
	inside sh -ec 'cmake -S /src/third_party/gloo -B /tmp/gloo/build -D SOURCE=/tmp/gloo/source -D CMAKE_INSTALL_PREFIX=/usr/local
		cmake --build /tmp/gloo/build -j"$(nproc)" -t install' >build/dist/gloo.log 2>&1 ||
		{ tail -n 20 build/dist/gloo.log >&2; fail "Gloo does not build; its output is in build/dist/gloo.log"; }
	rm -rf "$root/tmp/gloo"
	echo "$of" >"$root/usr/local/lib/libgloo.of"
}

build() {
	echo "dist: building $version"
	rm -rf "$tree" "$root/out"
	inside env GOFLAGS="-mod=vendor -trimpath" GOTOOLCHAIN=local HETERO_INSTALL=off \
		make -C /src --no-print-directory build install CUDA=off VERSION="$version" PREFIX=/ DESTDIR=/out >build/dist/build.log 2>&1 ||
		{ tail -n 20 build/dist/build.log >&2; fail "the build failed; its output is in build/dist/build.log"; }
	mkdir -p "$tree"
	cp -a "$root/out/." "$tree"
	strip --strip-unneeded "$libs"/*.so*
	strip "$tree/bin/hetero-train"
}

# glibc matches the names of the libraries that belong to glibc.
glibc='^(libc|libm|libpthread|libdl|librt|libutil|libresolv|ld-linux-x86-64)\.so\.'

# bundle copies all libraries that the program's libraries need directly or indirectly, except those of glibc.
bundle() {
	local more=yes file needed path
	while [ $more = yes ]; do
		more=no
		for file in "$tree/bin/hetero-train" "$libs"/*.so*; do
			for needed in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
				[[ $needed =~ $glibc ]] || [ -e "$libs/$needed" ] && continue
				path=$(inside ldconfig -p | sed -n "s|^\s*$needed (libc6,x86-64.*=> ||p" | head -n 1)
				[ -n "$path" ] || fail "$(basename "$file") needs $needed, which Debian $release does not have"
				cp "$(outside "$path")" "$libs/$needed"
				licence_of "$path"
				more=yes
			done
		done
	done
}

# outside PATH prints the path of a file of the root as seen from outside. Links in the root may be absolute, so they
# are resolved inside the root.
outside() { echo "$root$(inside readlink -f "$1")"; }

# run_paths sets the run path of every library, so that a library finds other libraries in its own folder.
run_paths() {
	local file
	for file in "$libs"/*.so*; do
		cp "$file" "$root/tmp/library.so"
		inside patchelf --set-rpath '$ORIGIN' /tmp/library.so
		cp "$root/tmp/library.so" "$file"
		chmod 755 "$file"
	done
}

# licence_of PATH: copies the copyright file of a library's Debian package, and records the source package.
licence_of() {
	local real package source
	real=$(inside readlink -f "$1")
	package=$(inside dpkg -S "$real" 2>/dev/null || inside dpkg -S "${real#/usr}" 2>/dev/null || inside dpkg -S "/usr$real")
	package=${package%%: *}
	mkdir -p "$licences/${package%%:*}"
	cp -L "$root/usr/share/doc/${package%%:*}/copyright" "$licences/${package%%:*}/"
	source=$(inside dpkg-query -W -f '${source:Package} ${source:Version}' "$package")
	echo "$(basename "$1"): Debian package ${package%%:*}; source package $source" >>"$licences/SOURCES.txt"
}

# collect_licences collects the licences of all libraries in the release.
collect_licences() {
	cp LICENSE "$licences/"
	mkdir -p "$licences/onednn" "$licences/go" "$licences/texts"
	cp -r third_party/onednn/share/doc/onednn/. "$licences/onednn/"
	mkdir -p "$licences/gloo" && cp third_party/gloo/LICENSE "$licences/gloo/"
	echo "libhetero_gloo.so: Gloo (linked statically); source archive $(basename "$gloo")" >>"$licences/SOURCES.txt"
	cp "$root/usr/local/go/LICENSE" "$licences/go/"
	cp "$root"/usr/share/common-licenses/{Apache-2.0,GPL-2,GPL-3,LGPL-2.1} "$licences/texts/"
	local module dir file
	go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./cmd/hetero-train | sort -u | while read -r module dir; do
		mkdir -p "$licences/go/$module"
		for file in "$dir"/*LICEN[SC]E* "$dir"/COPYING* "$dir"/NOTICE*; do
			[ ! -e "$file" ] || cp -r "$file" "$licences/go/$module/"
		done
		[ -n "$(ls "$licences/go/$module")" ] || fail "the Go module $module has no licence file"
	done
	chmod -R u+w "$licences"
}

make_root
copy_sources
build_gloo
build
mkdir -p "$licences"
bundle
run_paths
collect_licences
cp README.md "$tree/"
scripts/dist_check.sh --elf "$tree"
tar -C build/dist --owner=0 --group=0 -czf "build/$name.tar.gz" "$name"
echo "dist: build/$name.tar.gz, $(($(stat -c %s "build/$name.tar.gz") >> 20)) MiB"
