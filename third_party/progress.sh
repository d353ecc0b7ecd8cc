#!/usr/bin/env bash
# Runs a command of the build and prints its progress, one line at a time.
#
#   progress.sh cmake LOG COMMAND…   cmake --build: one line per tenth and per library. All output goes to LOG; if the
#                                    command fails, the script prints LOG
#   progress.sh go COMMAND…          go build -v: one line per 50 packages; other output is unchanged
#
# If the build has nothing to do, the script prints nothing. The exit code is that of the command.
set -u -o pipefail

# tenths prints progress from cmake's percentages. It understands the output of Makefiles ("[ 12%] Building …") and of
# ninja ("[3/40] …").
tenths() {
	local line percent tenth said=-1
	while IFS= read -r line; do
		case $line in
		*"] Building "* | *"] Linking "*) ;;
		*) continue ;; # "[100%] Built target …": the target was up to date
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
