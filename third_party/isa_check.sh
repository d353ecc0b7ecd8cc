#!/usr/bin/env bash
# Fails where a file compiled for a later instruction set (*_avx2.cc, *_avx512.cc …) defines a function that the
# linker may use for the whole library. Inline functions and templates with external linkage are such: of several
# copies the linker keeps any one, and if it keeps the AVX-512 copy, a CPU without AVX-512 dies in code that never
# asked for it. Cure: `static` or an unnamed namespace for what such a file defines, C headers instead of C++ ones.
# Fails, too, where it finds no such file on x86-64: then nothing was checked.
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
done < <(find "${1:?build folder}" \( -name '*_avx*.cc.o' -o -name '*_amx.cc.o' \) 2>/dev/null)
if [ $objects = 0 ] && [ "$(uname -m)" = x86_64 ]; then
	echo "isa_check: no *_avx*.cc.o or *_amx.cc.o under $1; run make first" >&2
	status=1
fi
exit $status
