#!/usr/bin/env bash
# Copies the licences of third-party code in a build to a folder.
#
#   notices.sh FOLDER BUILD [--go | --try-go]
#
# --go: also the licences of Go and of the Go modules in the program. --try-go: the same; but if this machine lacks Go
# or the modules, a message states that these licences are missing.
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
# Both libraries contain CUDA's run-time library.
if [ -e "$build/lib/libhetero_cuda.so" ] || [ -e "$build/lib/libhetero_nccl.so" ]; then
	mapfile -t texts < <(find "${HETERO_FETCHED:-third_party}"/.cuda/nvidia/licences/nvidia_cuda_runtime -type f 2>/dev/null)
	for file in "${CUDA_HOME:-/usr/local/cuda}"/EULA.txt /usr/share/doc/nvidia-cuda-toolkit/copyright; do
		[ ${#texts[@]} -gt 0 ] || [ ! -f "$file" ] || texts=("$file")
	done
	if [ ${#texts[@]} -gt 0 ]; then
		take cuda "${texts[@]}"
	else
		echo "notices: the licence of CUDA's run-time library was not found: add it to $to before you pass the build on" >&2
	fi
fi

# go_licences copies the licences of Go and of the Go modules in the program. The caller tests its result, so set -e has
# no effect within it.
go_licences() {
	local module dir list licence
	licence=$(go env GOROOT)/LICENSE
	# Some packages of Go, such as the wheel, lack this file. The other file has the same text.
	[ -f "$licence" ] || licence=$(go env GOROOT)/src/cmd/vendor/golang.org/x/sys/LICENSE
	[ -f "$licence" ] || return 1
	take go "$licence" || return 1
	list=$(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./cmd/hetero-train) || return 1
	while read -r module dir; do
		mapfile -t texts < <(find "$dir" -maxdepth 1 -type f \( -iname '*licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname patents \))
		[ ${#texts[@]} -gt 0 ] || {
			echo "notices: $dir has no licence of the Go module $module" >&2
			return 1
		}
		take "go/$module" "${texts[@]}" || return 1
	done < <(sort -u <<<"$list")
}
case ${3:-} in
--go) go_licences ;;
--try-go) GOPROXY=off go_licences ||
	echo "notices: the licences of the Go modules were not found: add them to $to before you pass the build on" >&2 ;;
esac
