#!/usr/bin/env bash
# Copies the licences of the parts of other projects that a build contains to a folder.
#
#   notices.sh FOLDER BUILD [--go]     --go: also the licences of Go and of the Go modules in the program
set -euo pipefail
cd "$(dirname "$0")/.."
to=$1 build=$2
onednn=${HETERO_ONEDNN_DIR:-${HETERO_FETCHED:-third_party}/onednn}

# take FOLDER FILE… copies texts to a folder.
take() {
	local into=$to/$1
	shift
	install -d "$into"
	install -m 644 "$@" "$into/"
}

take gloo third_party/gloo/LICENSE
take uplot third_party/uplot/LICENSE
if ls "$build"/lib/libdnnl.so* >/dev/null 2>&1; then
	mapfile -t texts < <(find "$onednn/share/doc/onednn" -type f 2>/dev/null)
	if [ ${#texts[@]} -gt 0 ]; then
		take onednn "${texts[@]}"
	else
		echo "notices: $onednn/share/doc/onednn is missing: add the licence of oneDNN to $to before you pass the build on" >&2
	fi
fi
[ "${3:-}" = --go ] || exit 0
take go "$(go env GOROOT)/LICENSE"
while read -r module dir; do
	mapfile -t texts < <(find "$dir" -maxdepth 1 -type f \( -iname '*licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname patents \))
	[ ${#texts[@]} -gt 0 ] || {
		echo "notices: $dir has no licence of the Go module $module" >&2
		exit 1
	}
	take "go/$module" "${texts[@]}"
done < <(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./cmd/hetero-train | sort -u)
