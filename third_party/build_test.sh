#!/usr/bin/env bash
# Tests the build: first folders and installation, with a fake Go and a fake CMake; then the optional parts, with the
# real CMake and fake libraries. scripts_test.sh runs this script.
set -u
cd "$(dirname "$0")"
. ./testing.sh
sources=$(cd .. && pwd)
chmod 755 "$room"

# tree PATH copies the files that these tests need.
tree() {
	mkdir -p "$1/third_party/onednn" "$1/scripts"
	cp "$sources"/{Makefile,CMakeLists.txt,go.mod,LICENSE,VERSION} "$sources"/*.md "$1/"
	cp -r "$sources"/{configs,docs} "$1/"
	cp -r "$sources"/scripts/{lab.sh,weather} "$1/scripts/"
	cp "$sources"/third_party/*.{sh,py,sha256,md} "$1/third_party/"
	cp -r "$sources"/third_party/{gloo,uplot} "$1/third_party/"
	cp "$sources/third_party/onednn.sha256" "$1/third_party/onednn/PINS"
}

mkdir -p "$room/bin"
wanted=$(sed -n 's/^go //p' ../go.mod)
program "$room/bin/go" "case \$1 in env) echo go$wanted; exit ;; esac" \
	'while [ $# -gt 1 ]; do [ "$1" != -o ] || program=$2; shift; done' \
	'printf "#!/bin/sh\necho run \$*\n" >"$program" && chmod +x "$program"'
program "$room/bin/cmake" 'case $1 in --version) echo "cmake version 3.25.1" ;;' \
	'-S) echo "$*" >"$4/arguments"; touch "$4/CMakeCache.txt"; echo "cpu: on (fake)" >"$4/parts.txt" ;;' \
	'--build) mkdir -p "$2/lib"; touch "$2/lib/libhetero_cpu.so" "$2/lib/libhetero_cuda_shim.so"; echo "[100%] Linking CXX shared library libhetero_cpu.so" ;; esac'
program "$room/bin/c++" 'case $* in *-dumpversion*) echo "${compiler:-12.2}" ;; esac'
cp "$room/bin/c++" "$room/bin/gcc"

# build FOLDER [ARGUMENT…] runs make in the folder, as a user other than root.
as=()
if [ "$(id -u)" = 0 ]; then as=(setpriv --reuid=65534 --regid=65534 --clear-groups); fi
build() {
	local folder=$1
	shift
	env -u MAKEFLAGS -u MAKELEVEL -u CXX -u CC -u CUDA -u WERROR -u CUDA_ARCHS -u HETERO_ONEDNN PATH="$room/bin:$PATH" HOME="${home-$room}" "${as[@]}" make -C "$folder" --no-print-directory "$@"
}
own() { [ ${#as[@]} = 0 ] || chown -R 65534:65534 "$@"; }

# Tests of folders whose names contain spaces.
tree "$room/a b"
tree "$room/c d"
mkdir "$room/out side"
own "$room"
expect 0 "cpu: on (fake)" "a folder with spaces" build "$room/a b"
[ -x "$room/a b/hetero-train" ] || complain "a folder with spaces" "there is no program"
expect 0 "cpu: on (fake)" "a second build" build "$room/a b"
without "configure:" "a second build"
expect 0 "" "two checkouts" build "$room/c d"
grep -q -- "-DHETERO_FETCHED=$room/c d/third_party" "$room/c d/build/arguments" || complain "two checkouts" "the second one uses $(cat "$room/c d/build/arguments")"
chmod -R a-w "$room/c d"
before=$(find "$room/c d" | sort)
expect 0 "cpu: on (fake)" "sources that are read-only" build "$room/c d" BUILD="$room/out side/b"
[ -x "$room/out side/b/hetero-train" ] && [ -e "$room/out side/b/lib/libhetero_cpu.so" ] || complain "sources that are read-only" "the program or its library is missing"
grep -q -- "-DHETERO_FETCHED=$room/out side/b/third_party" "$room/out side/b/arguments" || complain "sources that are read-only" "downloads would go to the sources"
[ "$before" = "$(find "$room/c d" | sort)" ] || complain "sources that are read-only" "the sources changed"
expect 2 "to build elsewhere: make BUILD=FOLDER" "sources that are read-only, without BUILD" build "$room/c d" SANITIZE=address
expect 0 "" "BUILD of the environment" env BUILD=17 bash -c "$(declare -f build); as=(${as[*]}) room='$room'; build '$room/a b'"
[ ! -e "$room/a b/17" ] || complain "BUILD of the environment" "it was used"
expect 0 "" "make clean" build "$room/c d" clean BUILD="$room/out side/b"
[ -z "$(ls -A "$room/out side/b" | grep -v arguments)" ] || complain "make clean" "it left $(ls -A "$room/out side/b")"

# make must find a program that deps.sh has installed.
mkdir -p "$room/a b/third_party/.tools/go/bin"
cp "$room/bin/go" "$room/a b/third_party/.tools/go/bin/"
expect 0 "$room/a b/third_party/.tools/go/bin/go" "Go of deps.sh" build "$room/a b" -s --eval 'where: ; @command -v go' where

# If HOME is not writable, Go's caches must be next to the downloads.
caches=(-s --eval 'where: ; @echo "got $$GOPATH $$GOCACHE"' where)
expect 0 "got  " "a HOME" env -u GOPATH -u GOCACHE bash -c "$(declare -f build); as=(${as[*]}) room='$room'; build '$room/a b' \"\$@\"" bash "${caches[@]}"
for home in "" /nowhere; do
	expect 0 "got $room/a b/third_party/.go $room/a b/third_party/.go/cache" "HOME='$home'" env -u GOPATH -u GOCACHE bash -c "$(declare -f build); as=(${as[*]}) room='$room' home='$home'; build '$room/a b' \"\$@\"" bash "${caches[@]}"
done
unset home

# A change of these facts must make CMake configure from the beginning.
mv "$room/a b" "$room/moved"
expect 0 "configure: another checkout than before (now: $room/moved), so build is configured again" "a moved checkout" build "$room/moved"
expect 0 "configure: another compiler than before" "another compiler" env compiler=13.1 bash -c "$(declare -f build); as=(${as[*]}) room='$room'; build '$room/moved'"
expect 0 "" "the same compiler" env compiler=13.1 bash -c "$(declare -f build); as=(${as[*]}) room='$room'; build '$room/moved'"
without "configure:" "the same compiler"
rm "$room/moved/build/.configured"
expect 0 "configure: build has no record of its configuration" "a build of an earlier release" build "$room/moved"

# The version must not come from another repository that contains the sources.
git -C "$room" init -q 2>/dev/null
git -C "$room" -c safe.directory="*" -c user.name=a -c user.email=a@b commit -q --allow-empty -m a && git -C "$room" -c safe.directory="*" tag v99
own "$room/.git"
expect 0 "hetero-train: $(cat ../VERSION)" "sources inside another repository" build "$room/moved"
echo 1.2.3+g1234567 >"$room/moved/VERSION"
expect 0 "hetero-train: 1.2.3+g1234567" "sources of an archive" build "$room/moved"

# Tests of make install and make uninstall.
mkdir -p "$room/usr/share/fish" "$room/stage"
own "$room/usr" "$room/stage"
expect 0 "install: $room/usr/local/bin/hetero-train" "install" build "$room/moved" install PREFIX="$room/usr/local"
[ -e "$room/usr/local/lib/hetero-train/libhetero_cpu.so" ] && [ ! -e "$room/usr/local/lib/hetero-train/libhetero_cuda_shim.so" ] || complain "install" "got the libraries $(ls "$room/usr/local/lib/hetero-train")"
[ -e "$room/usr/local/share/doc/hetero-train/licences/uplot/LICENSE" ] || complain "install" "the licence of uPlot is missing"
[ -e "$room/usr/local/share/doc/hetero-train/licences/gloo/LICENSE" ] || complain "install" "the licence of Gloo is missing"
[ "$(cat "$room/usr/local/share/bash-completion/completions/hetero-train")" = "run completion bash" ] || complain "install" "no completion"
expect 0 "" "a second install" build "$room/moved" install PREFIX="$room/usr/local"
expect 0 "" "uninstall" build "$room/moved" uninstall PREFIX="$room/usr/local"
[ "$(find "$room/usr" | sort)" = "$(printf '%s\n' "$room"/usr{,/share,/share/fish})" ] || complain "uninstall" "it left $(find "$room/usr")"
expect 0 "" "install for a package" build "$room/moved" install DESTDIR="$room/stage" PREFIX="/usr"
[ ! -e "$room/stage/usr/share/hetero-train/folders.txt" ] || complain "install for a package" "it contains a list of folders"
expect 0 "" "uninstall for a package" build "$room/moved" uninstall DESTDIR="$room/stage" PREFIX="/usr"
[ -z "$(ls -A "$room/stage")" ] || complain "uninstall for a package" "it left $(find "$room/stage")"
rm "$room/moved/hetero-train"
expect 2 "run make first" "install without a program" build "$room/moved" install PREFIX="$room/usr/local"

# parts NAME [OPTION…] configures with the real CMake, and prints the list of parts. The fake libraries are in
# $room/fake.
parts() {
	local name=$1 code
	shift
	# CMake wraps lines.
	CMAKE_INCLUDE_PATH=$room/fake/include CMAKE_LIBRARY_PATH=$room/fake/lib \
		cmake -S .. -B "$room/$name" --log-level=NOTICE -DHETERO_ONEDNN=off -DHETERO_CUDA=off "$@" 2>&1 | tr -s '[:space:]' ' '
	code=${PIPESTATUS[0]}
	[ "$code" != 0 ] || cat "$room/$name/parts.txt"
	return "$code"
}

# The fake libturbojpeg works at first, then lacks a function, and then is missing.
mkdir -p "$room"/fake/{include/gloo/transport,lib} "$room/parts/lib"
cat >"$room/fake/include/turbojpeg.h" <<'TURBO'
#ifdef __cplusplus
extern "C" {
#endif
typedef void *tjhandle;
typedef struct { int num, denom; } tjscalingfactor;
enum { TJERR_FATAL, TJCS_CMYK, TJCS_YCCK, TJPF_RGB, TJFLAG_ACCURATEDCT };
#define TJSCALED(dimension, factor) ((dimension) / (factor).denom)
tjhandle tjInitDecompress(void);
int tjDecompressHeader3(tjhandle, const unsigned char *, unsigned long, int *, int *, int *, int *);
int tjDecompress2(tjhandle, const unsigned char *, unsigned long, unsigned char *, int, int, int, int, int);
int tjGetErrorCode(tjhandle);
char *tjGetErrorStr2(tjhandle);
int tjDestroy(tjhandle);
#ifdef __cplusplus
}
#endif
TURBO
cat >"$room/turbo.c" <<'TURBO'
#include <turbojpeg.h>
tjhandle tjInitDecompress(void) { return 0; }
int tjDecompressHeader3(tjhandle a, const unsigned char *b, unsigned long c, int *d, int *e, int *f, int *g) { return 0; }
int tjDecompress2(tjhandle a, const unsigned char *b, unsigned long c, unsigned char *d, int e, int f, int g, int h, int i) { return 0; }
int tjGetErrorCode(tjhandle a) { return 0; }
char *tjGetErrorStr2(tjhandle a) { return 0; }
int tjDestroy(tjhandle a) { return 0; }
TURBO
${CC:-cc} -shared -fPIC -I "$room/fake/include" -o "$room/fake/lib/libturbojpeg.so" "$room/turbo.c"
echo '#error this is a very old Gloo' >"$room/fake/include/gloo/transport/context.h"
printf '!<arch>\n' >"$room/fake/lib/libgloo.a"
touch "$room/parts/lib/libhetero_gloo.so"
expect 0 "jpeg: on (libturbojpeg" "a libturbojpeg" parts parts
also "gloo: off (the Gloo in $room/fake/include is too old or damaged, so all ranks must be on one host: " "an old Gloo"
[ ! -e "$room/parts/lib/libhetero_gloo.so" ] || complain "an old Gloo" "the library of an earlier build is still there"
sed -i '/tjDecompress2/d' "$room/fake/include/turbojpeg.h"
expect 0 "jpeg: off ($room/fake/lib/libturbojpeg.so is too old or damaged, so Go decodes images, at about half the speed: " "a libturbojpeg that changed" parts parts
also "tjDecompress2" "a libturbojpeg that changed"
rm -r "$room/fake"
expect 0 "jpeg: o" "a libturbojpeg that was removed" parts parts
without "$room/fake" "a libturbojpeg that was removed"

# Tests of the search for oneDNN.
mkdir -p "$room"/fetched/onednn/{include/oneapi/dnnl,lib}
printf '#define DNNL_VERSION_MAJOR 3\n#define DNNL_VERSION_MINOR 2\n#define DNNL_VERSION_PATCH 0\n' >"$room/fetched/onednn/include/oneapi/dnnl/dnnl_version.h"
echo '#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_OMP' >"$room/fetched/onednn/include/oneapi/dnnl/dnnl_config.h"
echo '#error damaged' >"$room/fetched/onednn/include/oneapi/dnnl/dnnl.hpp"
echo damaged >"$room/fetched/onednn/lib/libdnnl.so"
expect 0 "cpu: on (PLAIN KERNELS, which train several times slower: no oneDNN v3, $room/fetched/onednn/lib/libdnnl.so is damaged" "a damaged oneDNN" \
	parts parts -DHETERO_ONEDNN=auto -DHETERO_FETCHED="$room/fetched"
expect 1 "HETERO_ONEDNN=on, but there is no oneDNN v3" "a damaged oneDNN that is required" parts parts -DHETERO_ONEDNN=on -DHETERO_FETCHED="$room/fetched"

# The fake CUDA toolkit is minimal. Its headers are those of the shim.
toolkit=$room/toolkit
mkdir -p "$toolkit"/{bin,lib,include}
printf '!<arch>\n' >"$toolkit/lib/libcudart_static.a"
ln -s "$sources"/cuda/shim/*.h "$toolkit/include/"
nvcc() {
	program "$toolkit/bin/nvcc" 'case $1 in --version) echo "release 13.0, V13.0.88"; exit ;; --list-gpu-code) printf "sm_80\nsm_90\nsm_100\n"; exit ;; esac' "$@"
}
nvcc
archs() { CUDA_HOME=$toolkit parts archs -DHETERO_CUDA="${cuda:-on}" -DHETERO_CUDA_ARCHS="$1"; }
expect 0 ", sm_80, sm_100 and PTX" "capabilities twice and in no order" archs "100;80;100;80"
[ "$(grep -c '^export ' "$room/archs/cuda.env")" = 3 ] || complain "the environment of go" "want three lines, got: $(cat "$room/archs/cuda.env")"
for list in "" "80 90" "80,90" "80;;90" "8.0" "sm_80" "80;all"; do
	expect 1 "CUDA_ARCHS: got '$list', want compute" "CUDA_ARCHS=$list" archs "$list"
done
expect 1 "CUDA_ARCHS: got 42, want of those that CUDA 13.0 makes code for: 80, 90, 100" "a capability that the toolkit does not know" archs "80;42"
# A cross build must not use the run-time library for this machine's processor.
[ -e .cuda-arm64 ] || CUDA_HOME=$toolkit expect 0 "cuda: off (no libcudart_static.a for aarch64 next to the toolkit in $toolkit; run: python3 third_party/cuda.py --arm64)" \
	"a cross build" parts crossed -DHETERO_CUDA=auto -DHETERO_CUDA_ARCHS=90 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
mkdir -p "$room/fetched/.cuda-arm64/nvidia/cu13"
ln -s "$toolkit/lib" "$room/fetched/.cuda-arm64/nvidia/cu13/lib"
CUDA_HOME=$toolkit expect 0 "cuda: on (CUDA 13.0 in $toolkit" "a cross build with the library" \
	parts crossed -DHETERO_CUDA=auto -DHETERO_CUDA_ARCHS=90 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DHETERO_FETCHED="$room/fetched"
nvcc 'echo "host_config.h:1: error: unsupported GNU version" >&2; exit 1'
expect 1 "unsupported GNU version" "nvcc refuses the compiler, CUDA=on" archs "90"
cuda=auto expect 0 "so the program uses no GPU: host_config.h:1: error: unsupported GNU version" "nvcc refuses the compiler" archs "90"
nvcc
rm "$toolkit/include/cublasLt.h"
cuda=auto expect 0 "does not work with this program, which therefore uses no GPU: " "a toolkit without cuBLASLt" archs "90"
exit $failed
