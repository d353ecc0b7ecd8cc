#!/usr/bin/env bash
# Configures the build of the native libraries: runs cmake for the build folder BUILD.
#
#   configure.sh BUILD [OPTION OF CMAKE…]
#
# CMake stores results in BUILD/CMakeCache.txt. It fails or ignores the change if the source folder, the build folder,
# the compiler or CMake itself has changed. BUILD/.configured records these four. If one of them differs, the script
# removes the cache and prints one line about it.
# At each configuration, the CMake files search again for optional libraries (third_party/cmake/probe.cmake).
set -u
cd "$(dirname "$0")/.."
build=${1:?want the build folder}
shift

# places prints the facts on which the cache depends. Each line contains name and value.
places() {
	local compiler program
	compiler=${CXX:-c++}
	program=${compiler%% *}
	echo "checkout $PWD"
	echo "build-folder $(cd "$build" && pwd)"
	echo "compiler $compiler, $(readlink -f "$(command -v "$program")"), $($compiler -dumpfullversion -dumpversion 2>/dev/null)"
	echo "CMake $(command -v cmake), $(cmake --version | sed -n '1s/.* //p')"
	echo "generator ${CMAKE_GENERATOR:-default}"
}

mkdir -p "$build" || exit
now=$(places)
before=$(cat "$build/.configured" 2>/dev/null)
if [ "$now" != "$before" ] && { [ -e "$build/CMakeCache.txt" ] || [ -e "$build/CMakeFiles" ]; }; then
	changed=$(grep -Fxv -f <(printf '%s\n' "$before") <<<"$now" | head -n 1)
	if [ -n "$before" ]; then
		echo "configure: another ${changed%% *} than before (now: ${changed#* }), so $build is configured again"
	else
		echo "configure: $build has no record of its configuration, so it is configured again"
	fi
	rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles"
fi
printf '%s\n' "$now" >"$build/.configured" || exit
exec cmake -S . -B "$build" --log-level=NOTICE "$@" >"$build/configure.log"
