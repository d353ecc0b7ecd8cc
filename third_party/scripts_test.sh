#!/usr/bin/env bash
# Tests deps.sh, isa_check.sh, progress.sh, glibc/ and the accepted values of CUDA_ARCHS. It prints the cases that fail.
# .ci/run runs it.
set -u
cd "$(dirname "$0")"
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
failed=0

# expect WANT TEXT NAME COMMAND… runs the command. It must end with exit code WANT, and its output must contain TEXT.
expect() {
	local want=$1 text=$2 name=$3 said code
	shift 3
	said=$("$@" 2>&1)
	code=$?
	if [ $code != "$want" ] || [[ $said != *"$text"* ]]; then
		echo "$name: got exit code $code, want $want and \"$text\": $said" >&2
		failed=1
	fi
}

# go_version TEXT runs deps.sh with a fake Go of this version.
go_version() {
	mkdir -p "$room/bin"
	printf '#!/bin/sh\ncase "$1" in env) echo "%s" ;; version) echo "go version %s linux/amd64" ;; esac\n' "$1" "$1" >"$room/bin/go"
	chmod +x "$room/bin/go"
	PATH="$room/bin:$PATH" HETERO_INSTALL=off HETERO_ONEDNN=off ./deps.sh
}

wanted=$(sed -n 's/^go //p' ../go.mod)
expect 0 "" "the Go that is asked for" go_version "go$wanted"
expect 0 "" "a patch release later" go_version "go${wanted%.*}.99"
expect 0 "" "a later Go" go_version go1.100.0
expect 0 "" "a later Go with a suffix" go_version "go1.100.0-vendor X:experiment"
expect 0 "" "a Go of no release" go_version "devel go1.100-0a1b2c3"
expect 1 "Go is too old (go1.9.7); install Go $wanted or newer" "an older Go" go_version go1.9.7
expect 1 "Go is too old" "a release candidate" go_version "go${wanted%.*}rc1"
expect 1 "Go is too old" "a Go that says nothing" go_version ""

expect 0 "" "functions of later versions of glibc" glibc/old_test.sh

# object NAME CODE compiles a file as if for a later instruction set.
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

# archs LIST configures the build for these compute capabilities, with a minimal fake toolkit.
toolkit=$room/toolkit
mkdir -p "$toolkit"/{bin,lib,include}
touch "$toolkit"/lib/libcudart_static.a "$toolkit"/include/cudnn.h
cat >"$toolkit/bin/nvcc" <<'NVCC'
#!/bin/sh
case $1 in --version) echo "release 13.0, V13.0.88" ;; --list-gpu-code) printf 'sm_80\nsm_90\nsm_100\n' ;; esac
NVCC
chmod +x "$toolkit/bin/nvcc"
archs() {
	CUDA_HOME=$toolkit cmake -S .. -B "$room/archs" -DHETERO_ONEDNN=off -DHETERO_CUDA=on -DHETERO_CUDA_ARCHS="$1" 2>&1 | tr -s '[:space:]' ' ' # CMake breaks lines
	[ "${PIPESTATUS[0]}" = 0 ] && cat "$room/archs/parts.txt"
}
expect 0 ", sm_80, sm_100 and PTX" "capabilities twice and in no order" archs "100;80;100;80"
for list in "" "80 90" "80,90" "80;;90" "8.0" "sm_80" "80;all"; do
	expect 1 "CUDA_ARCHS: got '$list', want compute" "CUDA_ARCHS=$list" archs "$list"
done
expect 1 "CUDA_ARCHS: got 42, want of those that CUDA 13.0 makes code for: 80, 90, 100" "a capability that the toolkit does not know" archs "80;42"
exit $failed
