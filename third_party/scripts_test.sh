#!/usr/bin/env bash
# Tests the scripts of this folder: deps.sh (deps_test.sh); make, configure.sh, install.sh and the optional parts
# (build_test.sh); isa_check.sh, notices.sh, progress.sh and glibc/. It prints the cases that fail. .ci/run runs this
# script.
set -u
cd "$(dirname "$0")"
. ./testing.sh

./deps_test.sh || failed=1
./build_test.sh || failed=1

expect 0 "" "functions of later versions of glibc" glibc/old_test.sh

# object NAME CODE compiles code to an object file. Its name states an instruction set.
object() {
	rm -rf "$room/build" && mkdir -p "$room/build"
	echo "$2" | "${CXX:-c++}" -x c++ -c -o "$room/build/$1" -
}

inline='inline int twice(int x) { return 2 * x; } int (*f)(int) = twice;'
object k_avx2.cc.o "static $inline"
expect 0 "" "functions of one file" ./isa_check.sh "$room/build"
object k_avx2.cc.o "$inline"
expect 1 "twice(int)" "a shared function" ./isa_check.sh "$room/build"
object k.cc.o "$inline"
if [ "$(uname -m)" = x86_64 ]; then
	expect 1 "run make first" "nothing to check" ./isa_check.sh "$room/build"
else
	expect 0 "" "nothing to check" ./isa_check.sh "$room/build"
fi

# progress MODE TEXT COMMAND… prints the output of progress.sh for a build with the output TEXT.
progress() {
	local mode=$1 text=$2
	shift 2
	local log=()
	[ "$mode" = go ] || log=("$room/log")
	./progress.sh "$mode" ${log[@]+"${log[@]}"} sh -c "printf '$text'; $*"
}

expect 0 "native: 12 %" "a tenth of make's" progress cmake '[ 12%%] Building CXX object a.o\n' true
expect 0 "native: 50 %" "a tenth of ninja's" progress cmake '[2/4] Building CXX object a.o\n' true
expect 0 "native: 20 %, libhetero_shm.so is built" "a library" progress cmake '[ 20%%] Linking CXX shared library lib/libhetero_shm.so\n' true
expect 3 "no such header" "a build that fails" progress cmake 'no such header\n' exit 3
expect 1 "x.go:1: bad" "Go code that does not compile" progress go 'a/b\n# a/b\nx.go:1: bad\n' exit 1
expect 2 "want cmake or go" "another build" ./progress.sh ant
said=$(progress cmake '[100%%] Built target hetero_cpu\n' true)
if [ -n "$said" ]; then
	echo "nothing to build: got $said, want silence" >&2
	failed=1
fi

# Tests of the licences of Go modules, with a fake Go that knows two modules.
mkdir -p "$room/bin" "$room/go" "$room/module" && echo go >"$room/go/LICENSE"
program "$room/bin/go" "case \$1 in env) echo '$room/go' ;; list) printf 'a.b/c $room/module\nz $room/module\n' ;; esac"
notices() { PATH=$room/bin:$PATH ./notices.sh "$room/licences" "$room/build" "$1"; }
missing="the licences of the Go modules were not found"
expect 0 "$missing" "a module without a licence" notices --try-go
also "$room/module has no licence of the Go module a.b/c" "a module without a licence"
expect 1 "has no licence of the Go module" "a module without a licence, --go" notices --go
echo module >"$room/module/LICENSE"
mkdir -p "$room/licences/go/a.b" && touch "$room/licences/go/a.b/c"
expect 0 "$missing" "a licence that cannot be copied" notices --try-go
rm "$room/licences/go/a.b/c"
expect 0 "" "licences of modules" notices --try-go
[ "$(cat "$room/licences/go/a.b/c/LICENSE")" = module ] || complain "licences of modules" "got $(find "$room/licences")"
without "$missing" "licences of modules"

exit $failed
