#!/usr/bin/env bash
# Packs an archive from which `make` builds the program without a network. It contains the sources, the Go modules
# (vendor), and Go, CMake and oneDNN from their wheels. The archive is for machines with the same processor
# architecture. They need make, bash and a C++ compiler.
#
#   offline.sh BUILD VERSION      makes BUILD/hetero-train-VERSION-offline-MACHINE.tar.gz
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
name=hetero-train-$2
archive=$name-offline-$(uname -m).tar.gz
fetched=${HETERO_FETCHED:-$PWD/third_party}

mkdir -p "$build"
work=$(cd "$(mktemp -d "$build/offline.XXXXXX")" && pwd)
trap 'rm -rf "$work"' EXIT
tree=$work/$name
mkdir "$tree"

# The sources are the files that git tracks. Without git, they are all files except those of builds and downloads.
if [ -e .git ]; then
	git ls-files -z | tar --null --files-from=- -cf - | tar -C "$tree" -xf -
else
	tar --exclude=./build --exclude=./hetero-train --exclude=./experiments --exclude=./vendor --exclude='./third_party/.*' \
		--exclude=./third_party/onednn --exclude=__pycache__ -cf - . | tar -C "$tree" -xf -
fi
echo "$2" >"$tree/VERSION"

python3 third_party/tools.py go
python3 third_party/tools.py cmake
cp -a "$fetched/.tools" "$tree/third_party/"
if [ "$(uname -m)" = x86_64 ]; then
	python3 third_party/onednn.py
	cp -a "$fetched/onednn" "$tree/third_party/"
fi
if [ -d vendor ]; then
	cp -a vendor "$tree/"
else
	"$fetched/.tools/go/bin/go" mod vendor -o "$tree/vendor" 2>"$build/vendor.log" || {
		tail -n 5 "$build/vendor.log" >&2
		echo "offline: go mod vendor failed; its output is in $build/vendor.log" >&2
		exit 1
	}
fi

tar -C "$work" --owner=0 --group=0 -cf - "$name" | gzip -1 >"$build/$archive.part"
mv "$build/$archive.part" "$build/$archive"
echo "offline: $build/$archive, $(($(stat -c %s "$build/$archive") >> 20)) MiB"
