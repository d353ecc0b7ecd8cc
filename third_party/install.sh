#!/usr/bin/env bash
# Installs the results of `make`, or removes them again.
#
#   install.sh install DESTDIR PREFIX PROGRAM BUILD [RUNS]   copies to DESTDIR/PREFIX. RUNS: a program that runs on this
#                                                   machine, for the shell completions; default PROGRAM
#   install.sh uninstall DESTDIR PREFIX                 removes these files, and the folders that install created
#
# Without DESTDIR, share/hetero-train/folders.txt lists the folders that install created, because uninstall must keep
# empty folders of the system. With DESTDIR, which is used to make packages, uninstall removes all folders that become
# empty.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=$1 staged=$2
to=$staged${3%/}
share=$to/share/hetero-train

fail() {
	echo "$mode: $1" >&2
	exit 2
}

made=()
# folder PATH creates a folder. It adds every folder that did not exist to made, parents first.
folder() {
	[ ! -d "$1" ] || return 0
	folder "$(dirname "$1")"
	install -d "$1"
	made+=("$1")
}

# put MODE FOLDER FILE… copies files.
put() {
	local mode=$1 into=$2
	shift 2
	folder "$into"
	install -m "$mode" "$@" "$into/"
}

install_all() {
	local program=$1 build=$2 runs=${3:-$1} file shell name
	[ -x "$program" ] && [ -d "$build/lib" ] || fail "$program or $build/lib is missing; run make first"
	put 755 "$to/bin" "$program"
	folder "$to/lib/hetero-train"
	for file in "$build"/lib/libhetero_*.so "$build"/lib/libdnnl.so.*; do
		case $file in *_shim.so) continue ;; esac
		[ ! -e "$file" ] || put 755 "$to/lib/hetero-train" "$file"
	done
	put 644 "$share/configs" configs/*.toml configs/README.md
	put 755 "$share/scripts" scripts/lab.sh
	put 644 "$share/scripts/weather" scripts/weather/*.txt
	while read -r file; do
		put 644 "$(dirname "$to/share/doc/hetero-train/$file")" "$file"
	done < <(printf '%s\n' LICENSE *.md configs/README.md third_party/README.md && find docs -name '*.md' -o -path 'docs/images/*' -type f)
	folder "$to/share/doc/hetero-train/licences"
	third_party/notices.sh "$to/share/doc/hetero-train/licences" "$build" --try-go
	for shell in bash:bash-completion/completions/hetero-train zsh:zsh/site-functions/_hetero-train \
		fish:fish/vendor_completions.d/hetero-train.fish; do
		name=$to/share/${shell#*:}
		folder "$(dirname "$name")"
		"$runs" completion "${shell%%:*}" >"$name"
		chmod 644 "$name"
	done
	if [ -z "$staged" ] && [ ${#made[@]} -gt 0 ]; then
		printf '%s\n' "${made[@]}" >>"$share/folders.txt" # a second install adds to the list of the first one
	fi
	echo "install: $to/bin/hetero-train"
}

uninstall_all() {
	local path list=()
	if [ -z "$staged" ]; then
		mapfile -t list < <(tac "$share/folders.txt" 2>/dev/null)
	else
		for path in "$to"/{bin,lib,share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d,doc}}; do
			while [ "${#path}" -gt "${#staged}" ]; do
				list+=("$path")
				path=$(dirname "$path")
			done
		done
	fi
	rm -f "$to/bin/hetero-train" "$to/share/bash-completion/completions/hetero-train" \
		"$to/share/zsh/site-functions/_hetero-train" "$to/share/fish/vendor_completions.d/hetero-train.fish"
	rm -rf "$to/lib/hetero-train" "$share" "$to/share/doc/hetero-train"
	for path in "${list[@]}"; do
		[ ! -d "$path" ] || rmdir --ignore-fail-on-non-empty "$path"
	done
}

case $mode in
install) install_all "$4" "$5" "${6:-}" ;;
uninstall) uninstall_all ;;
*) fail "got '$mode', want install or uninstall" ;;
esac
