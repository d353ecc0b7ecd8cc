#!/usr/bin/env bash
# Fails if a file for a later instruction set (*_avx2.cc, *_avx512.cc …) defines a function that the linker may use for
# the whole library. Such a function is an inline function or a template with external linkage. The linker keeps only
# one of several copies. If it keeps the AVX-512 copy, a CPU without AVX-512 crashes in code that does not use AVX-512.
# The same holds for *_bf16_arm64.cc on arm64.
# Remedy: define functions of such files as `static` or in an unnamed namespace, and use C headers instead of C++
# headers.
# On x86-64, the script also fails if it finds no such file, because it then checks nothing.
#
#   third_party/isa_check.sh BUILD_DIR
set -u
status=0
objects=0
while read -r object; do
	objects=$((objects + 1))
	leaked=$(nm -C --defined-only "$object" | awk '$2 == "W"' | cut -d' ' -f3-)
	if [ -n "$leaked" ]; then
		echo "$object shares functions compiled for its instruction set:" >&2
		printf '%s\n' "$leaked" | sed 's/^/  /' >&2
		status=1
	fi
done < <(find "${1:?build folder}" \( -name '*_avx*.cc.o' -o -name '*_amx.cc.o' -o -name '*_bf16_arm64.cc.o' \) 2>/dev/null)
if [ $objects = 0 ] && [ "$(uname -m)" = x86_64 ]; then
	echo "isa_check: no *_avx*.cc.o or *_amx.cc.o under $1; run make first" >&2
	status=1
fi
exit $status
