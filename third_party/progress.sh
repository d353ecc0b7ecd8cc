#!/usr/bin/env bash
# Runs a command of the build and shows how far it is, a line at a time, on a terminal and without one.
#
#   progress.sh cmake LOG COMMAND…   cmake --build: a line for each tenth and each library; all output goes to LOG, and is shown if the command fails
#   progress.sh go COMMAND…          go build -v: a line for each 50 packages; other output is shown as it is
#
# Where nothing has to be built it prints nothing. The exit code is the command's.
set -u -o pipefail

# tenths prints percentages of cmake's output, as Makefiles ("[ 12%] Building …") and ninja ("[3/40] Building …") write them.
tenths() {
	local line percent tenth said=-1
	while IFS= read -r line; do
		case $line in
		*"] Building "* | *"] Linking "*) ;;
		*) continue ;; # "[100%] Built target …": nothing was done
		esac
		if [[ $line =~ ^\[\ *([0-9]+)%\] ]]; then
			percent=${BASH_REMATCH[1]}
		elif [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
			percent=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2]))
		else
			continue
		fi
		tenth=$((percent / 10))
		if [[ $line =~ Linking\ .*\ (.*/)?(lib[^ /]+\.so|[^ /]+)$ ]]; then
			echo "native: $percent %, ${BASH_REMATCH[2]} is built ($SECONDS s)"
			said=$tenth
		elif [ $tenth -gt $said ]; then
			echo "native: $percent % ($SECONDS s)"
			said=$tenth
		fi
	done
}

# packages counts the lines of go build -v that name a package.
packages() {
	local line count=0
	while IFS= read -r line; do
		if [[ ! $line =~ ^[A-Za-z0-9._~/-]+$ ]]; then
			printf '%s\n' "$line" >&2
		elif [ $((++count % 50)) = 0 ]; then
			echo "go: $count packages are compiled ($SECONDS s)"
		fi
	done
}

mode=$1
shift
case $mode in
cmake)
	log=$1
	shift
	"$@" 2>&1 | tee "$log" | tenths
	code=${PIPESTATUS[0]}
	[ "$code" = 0 ] || cat "$log"
	exit "$code"
	;;
go)
	"$@" 2>&1 | packages
	exit "${PIPESTATUS[0]}"
	;;
*)
	echo "progress.sh: got '$mode', want cmake or go" >&2
	exit 2
	;;
esac
