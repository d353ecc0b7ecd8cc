#!/usr/bin/env bash
# Tests npm_lock.py with changed lock files. .ci/run runs this script.
set -u
here=$(cd "$(dirname "$0")" && pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
failed=0
mkdir -p "$room/profiler/dashboard/ui" "$room/third_party"

# expect TEXT CHANGE copies the lock file and changes it by the Python statement CHANGE. npm_lock.py must then report a
# fault that contains TEXT. If TEXT is empty, it must report none.
expect() {
	cp "$here"/../profiler/dashboard/ui/package*.json "$room/profiler/dashboard/ui/"
	cp -r "$here"/../third_party/{uplot,notices.sh} "$room/third_party/"
	(cd "$room" && python3 -c "
import json, os
path = 'profiler/dashboard/ui/package-lock.json'
lock = json.load(open(path))
packages, vite = lock['packages'], lock['packages']['node_modules/vite']
$2
json.dump(lock, open(path, 'w'))") || failed=1
	local got code
	got=$("$here/npm_lock.py" "$room")
	code=$?
	if [ -z "$1" ]; then
		[ $code = 0 ] || { echo "no change: got exit code $code: $got" >&2 && failed=1; }
	elif [ $code != 1 ] || ! grep -qF -- "$1" <<<"$got"; then
		echo "$2: got exit code $code, want 1 and \"$1\" in: $got" >&2 && failed=1
	fi
}
expect "" "pass"
expect "node_modules/vite: integrity None" "del vite['integrity']"
expect "node_modules/vite: integrity 'sha1-" "vite['integrity'] = 'sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk='"
expect "it comes from git+ssh://" "vite['resolved'] = 'git+ssh://git@example.com/vite.git'"
expect "it comes from https://" "vite['resolved'] = 'https://example.com/vite-7.3.8.tgz'"
expect "it is a link to a folder" "vite['link'] = True"
expect "it is no package below node_modules" "packages['../vite'] = vite"
expect "version 'latest'" "vite['version'] = 'latest'"
expect "vite: it is in the page, and third_party/vite/LICENSE is missing" "del vite['dev']"
expect "third_party/uplot/LICENSE is missing" "os.remove('third_party/uplot/LICENSE')"
expect "does not copy its licence" "open('third_party/notices.sh', 'w').close()"
expect "package-lock.json has" "packages['']['dependencies']['left-pad'] = '1.3.0'"
[ $failed = 0 ] && echo "npm_lock.py: as expected"
exit $failed
