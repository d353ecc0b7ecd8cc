#!/bin/sh
# Prints the version of these sources. It is the release in the file VERSION, followed by the commit if this commit is not
# the tag of the release or if files differ from it: 0.1.0, 0.1.0+g1234567, 0.1.0+g1234567.dirty.
set -eu
cd "$(dirname "$0")/.."
release=$(cat VERSION)
echo "$release" | grep -Eqx '[0-9]+(\.[0-9]+)*(\+[a-z0-9.]+)?' || { echo "version.sh: VERSION: got '$release', want a release such as 0.1.0" >&2; exit 1; }
# Sources without .git come from an archive, even if a folder above them is a repository.
[ -e .git ] || { echo "$release"; exit; }
# The clone may belong to another user, for example in a container with a bind mount.
described() { git -c safe.directory='*' describe "$@" 2>/dev/null; }
if [ "$(described --tags --exact-match --dirty --match "v$release" || :)" = "v$release" ]; then
	echo "$release"
elif commit=$(described --always --exclude='*' --abbrev=7 --dirty=.dirty); then
	echo "$release+g$commit"
else
	echo "$release+unknown" # git is missing, or there is no commit
fi
