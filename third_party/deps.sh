#!/usr/bin/env bash
# Finds the tools and libraries of the build, and installs missing ones. If nothing is missing, it prints nothing.
#
#   third_party/deps.sh           `make` runs this; it does not repeat an installation that failed before
#   third_party/deps.sh --force   `make deps` runs this; it repeats a failed installation
#
# As root on a system with apt-get, the script installs missing packages and prints their names. Otherwise it prints the
# command that installs them. A missing tool ends the build; a missing library only disables a part of the program.
#
#   HETERO_INSTALL=off     never install system packages, only print the missing ones
#   HETERO_ONEDNN=off      build with plain kernels only: do not download oneDNN
#   HETERO_ONEDNN_DIR=DIR  use the oneDNN v3 in DIR/include and DIR/lib: do not download oneDNN
set -u
cd "$(dirname "$0")/.."

failed_before=build/.deps-failed
go_wanted=$(sed -n 's/^go //p' go.mod)
needed=()   # packages without which the build fails
optional=() # packages that enable optional parts
fetcher=()  # what the download of oneDNN needs; without it, onednn.py prints advice

have() { command -v "$1" >/dev/null 2>&1; }
cxx() { "${CXX:-c++}" "$@"; }

# fetches_onednn reports whether the build downloads oneDNN. The pinned wheels are for x86-64 Linux. On other systems,
# or on request, the build searches for another oneDNN.
fetches_onednn() {
	[ -z "${HETERO_ONEDNN_DIR:-}" ] && [ "${HETERO_ONEDNN:-auto}" != off ] &&
		[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ]
}

onednn_is_there() { cmp -s third_party/onednn.sha256 third_party/onednn/PINS; }

# has_header NAME reports whether the C++ compiler finds the header.
has_header() { echo "#include <$1>" | cxx -E -x c++ - >/dev/null 2>&1; }

look() {
	needed=() optional=() fetcher=()
	have cc || [ -n "${CC:-}" ] || needed+=(gcc)
	have "${CXX:-c++}" || needed+=(g++)
	have cmake || needed+=(cmake)
	have make || needed+=(make)
	have python3 || needed+=(python3)
	if fetches_onednn && ! onednn_is_there && have python3 && ! python3 -m pip --version >/dev/null 2>&1; then
		fetcher+=(python3-pip)
	fi
	has_header turbojpeg.h || optional+=(libturbojpeg0-dev)
	has_header gloo/rendezvous/context.h || optional+=(libgloo-dev)
	if ! fetches_onednn && [ -z "${HETERO_ONEDNN_DIR:-}" ] && [ "${HETERO_ONEDNN:-auto}" != off ] &&
		! has_header oneapi/dnnl/dnnl.h && debian_has_onednn_v3; then
		optional+=(libdnnl-dev)
	fi
}

debian_has_onednn_v3() { have apt-cache && apt-cache policy libdnnl-dev 2>/dev/null | grep -q 'Candidate: 3\.'; }

may_install() { [ "${HETERO_INSTALL:-on}" != off ] && [ "$(id -u)" = 0 ] && have apt-get; }

# install PACKAGE… installs packages. A first failure is usually due to an empty or old package list, so install
# refreshes the list once.
install() {
	echo "deps: installing with apt-get, as root: $* (to prevent this, set HETERO_INSTALL=off)"
	local log=build/deps.log
	mkdir -p build
	export DEBIAN_FRONTEND=noninteractive
	if apt-get install -y --no-install-recommends "$@" >"$log" 2>&1; then return 0; fi
	if apt-get update >>"$log" 2>&1 && apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1; then return 0; fi
	tail -n 3 "$log" >&2
	echo "deps: apt-get could not install $*; its output is in $log" >&2
	return 1
}

# advise PACKAGE…: prints the command that installs the packages, with the names of Debian or Fedora.
advise() {
	local names="$*"
	if have dnf; then
		names=${names//libturbojpeg0-dev/turbojpeg-devel}
		names=${names//libgloo-dev/gloo-devel}
		names=${names//libdnnl-dev/onednn-devel}
		names=${names//g++/gcc-c++}
		echo "sudo dnf install $names"
	else
		echo "sudo apt-get install $names"
	fi
}

# check_go checks that Go has the version of go.mod or a later one. A Go that may download toolchains reports the
# version of go.mod.
check_go() {
	local version problem
	if ! have go; then
		problem="go is missing"
	else
		version=$(go env GOVERSION 2>/dev/null)
		version=${version%%[ -]*} # go1.27.1 X:experiments, go1.27-suffix
		case $version in
		devel*) return 0 ;; # built from a development version, later than any release
		go*) at_least "$go_wanted" "${version#go}" && return 0 ;;
		esac
		version=$(GOTOOLCHAIN=local go version 2>/dev/null | cut -d' ' -f3)
		problem="Go is too old (${version:-of an unknown version})"
	fi
	echo "deps: $problem; install Go $go_wanted or newer from go.dev (system packages are often older)" >&2
	return 1
}

# at_least WANTED VERSION reports whether VERSION is at least WANTED. 1.27rc1 is before 1.27.0.
at_least() { printf '%s\n%s\n' "$1" "${2/rc/~rc}" | sort -V -C; }

look
missing=(${needed[@]+"${needed[@]}"} ${fetcher[@]+"${fetcher[@]}"} ${optional[@]+"${optional[@]}"})
if [ ${#missing[@]} -gt 0 ] && may_install; then
	if [ "${1:-}" = --force ] || [ "$(cat "$failed_before" 2>/dev/null)" != "${missing[*]}" ]; then
		rm -f "$failed_before"
		# One at a time: if an optional package is not available, required ones must still be installed.
		for package in "${missing[@]}"; do
			install "$package" || echo "${missing[*]}" >"$failed_before"
		done
		look
	fi
fi

status=0
check_go || status=1
if [ ${#needed[@]} -gt 0 ]; then
	echo "deps: missing: ${needed[*]}; run: $(advise "${needed[@]}")" >&2
	status=1
fi
if [ ${#optional[@]} -gt 0 ]; then
	echo "deps: missing: ${optional[*]} (optional: the build continues without them); run: $(advise "${optional[@]}")" >&2
fi
[ $status = 0 ] || exit $status

# The build continues without the download: CMake may find oneDNN on the system, and reports an error otherwise.
if fetches_onednn && ! onednn_is_there; then
	python3 third_party/onednn.py || true
fi
exit 0
