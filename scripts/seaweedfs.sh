#!/usr/bin/env bash
# Builds SeaweedFS's S3 server (Apache-2.0), which tests of S3 use, and prints the path of the program.
#
#   seaweedfs.sh [FOLDER]     default: build/seaweedfs
#
# Its sources come from the Go module proxy. Its own go.mod and go.sum pin its dependencies, so they are no dependencies
# of this project. The build takes about 3 GB of disk space and, on two cores, about 15 minutes. A second call uses the
# built program.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v0.0.0-20261109003541-7506e5f91cd6
folder=${1:-build/seaweedfs}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
program=$folder/weed-$version
if [ ! -x "$program" ]; then
	# Go cannot install a module with replacements by its name, so the script builds it as the main module.
	sources=$(cd "$folder" && GOWORK=off GOFLAGS=-mod=mod go mod download -json "github.com/seaweedfs/seaweedfs@$version" |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
	(cd "$sources" && GOWORK=off GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -trimpath -o "$program.part" ./weed) >&2
	mv "$program.part" "$program"
fi
echo "$program"
