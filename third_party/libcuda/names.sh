#!/usr/bin/env bash
# Writes the names of the driver functions that gorgonia.org/cu calls to names.txt. Run the script after an update of
# cu or of the toolkit. CUDA_INCLUDE is the folder of the toolkit's cuda.h.
set -euo pipefail
cd "$(dirname "$0")"
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
ar rcs "$room/libcuda.a"
CGO_CFLAGS="-I$PWD/../cuda_compat -I$CUDA_INCLUDE -Wno-deprecated-declarations -Wno-implicit-function-declaration" \
	CGO_LDFLAGS="-L$room -Wl,--unresolved-symbols=ignore-all" go build -tags cuda -buildmode=archive -o "$room/cu.a" gorgonia.org/cu
(cd "$room" && ar x cu.a)
{
	echo "# Entries of the driver that gorgonia.org/cu calls, as CUDA's header names them; made by names.sh."
	nm "$room"/*.o 2>/dev/null | awk '$1 == "U" && $2 ~ /^cu[A-Z]/ { want[$2] } $2 == "T" { own[$3] } END { for (n in want) if (!(n in own)) print n }' | LC_ALL=C sort
} >names.txt
