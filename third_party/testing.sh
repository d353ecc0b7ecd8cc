# Functions for the tests of this folder, which source this file.
room=$(mktemp -d)
trap 'chmod -R u+w "$room"; rm -rf "$room"' EXIT
failed=0

# complain NAME TEXT reports a case that failed.
complain() {
	echo "$1: $2" >&2
	failed=1
}

# expect WANT TEXT NAME COMMAND… runs the command. It must end with exit code WANT, and its output must contain TEXT. The
# output is in $said.
expect() {
	local want=$1 text=$2 name=$3 code
	shift 3
	said=$("$@" 2>&1)
	code=$?
	if [ $code != "$want" ] || [[ $said != *"$text"* ]]; then
		complain "$name" "got exit code $code, want $want and \"$text\": $said"
	fi
}

# also TEXT NAME checks that the output of the last expect contains TEXT, too.
also() { [[ $said == *"$1"* ]] || complain "$2" "want \"$1\" in: $said"; }

# without TEXT NAME checks that the output of the last expect does not contain TEXT.
without() { [[ $said != *"$1"* ]] || complain "$2" "want no \"$1\" in: $said"; }

# silent NAME checks that the last expect printed nothing.
silent() { [ -z "$said" ] || complain "$1" "want no output, got: $said"; }

# program PATH LINE… writes a shell script.
program() {
	local path=$1
	shift
	rm -f "$path"
	printf '%s\n' '#!/bin/sh' "$@" >"$path"
	chmod +x "$path"
}
