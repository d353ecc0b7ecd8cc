#!/usr/bin/env bash
# Builds the user interface of the dashboard from profiler/dashboard/ui/src. The result is profiler/dashboard/ui/bundle,
# which is committed.
#
#   scripts/dashboard_ui.sh            test, build and replace the bundle
#   scripts/dashboard_ui.sh --check    test and build, and fail unless the committed bundle has the same bytes
#
# The script needs Node 20 or later with npm. `make` does not need them, because it uses the committed bundle.
set -euo pipefail
cd "$(dirname "$0")/../profiler/dashboard/ui"

mode=${1:-}
case $mode in
'' | --check) ;;
*)
	echo "usage: scripts/dashboard_ui.sh [--check]" >&2
	exit 2
	;;
esac

most=$((400 * 1024)) # limit of the compressed bundle in bytes, so that it loads within seconds on a slow link

npm ci --ignore-scripts --no-audit --no-fund
npm test
npm run build

if [ "$mode" = --check ]; then
	listed=$(cd bundle && ls | sed 's/\.gz$//')
	built=$(cd dist && ls)
	[ "$listed" = "$built" ] || {
		echo "dashboard_ui: the bundle has the files" $listed", but the sources generate" $built": run scripts/dashboard_ui.sh" >&2
		exit 1
	}
	for file in $built; do
		gzip -dc "bundle/$file.gz" | cmp - "dist/$file" || {
			echo "dashboard_ui: $file in the bundle differs from the file that the sources generate: run scripts/dashboard_ui.sh" >&2
			exit 1
		}
	done
else
	rm -rf bundle
	mkdir bundle
	for file in dist/*; do
		gzip -9 -n -c "$file" >"bundle/${file#dist/}.gz"
	done
fi

size=$(cat bundle/*.gz | wc -c)
echo "dashboard_ui: the bundle has $size bytes, at most $most"
[ "$size" -le "$most" ]
