#!/usr/bin/env bash
# Tests the parts of dist.sh, dist_check.sh and machines.sh that need no root: wheel.py, the check of symbols, and
# machines_table.py. .ci/run runs this script.
set -u
cd "$(dirname "$0")"
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
failed=0
platform=manylinux_2_28_$(uname -m)

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

# tree FOLDER creates the files of a small release.
tree() {
	mkdir -p "$1"/{bin,lib/hetero-train,share/hetero-train/configs,share/doc/hetero-train/licences}
	printf '#!/bin/sh\necho "$0" "$@"\n' >"$1/bin/hetero-train"
	echo 'a = 1' >"$1/share/hetero-train/configs/a.toml"
	echo licence >"$1/share/doc/hetero-train/licences/LICENSE"
	echo '# hetero-train' >"$1/README.md"
	find "$1" -type f -exec chmod 644 {} +
	chmod 755 "$1/bin/hetero-train"
	for name in a b c d e; do
		echo 'extern "C" int f() { return 1; }' | ${CXX:-c++} -shared -fPIC -nodefaultlibs -Wl,-rpath,'$ORIGIN' -x c++ -o "$1/lib/hetero-train/lib$name.so" -
	done
}

# version.sh must print the release. Unless the checkout is the unchanged tag of the release, it must also print the
# commit.
mkdir -p "$room/sources/third_party"
cp ../third_party/version.sh "$room/sources/third_party/"
echo 1.2.0 >"$room/sources/VERSION"
version() { "$room/sources/third_party/version.sh"; }
in_git() { git -C "$room/sources" -c user.name=a -c user.email=a@b "$@" >/dev/null 2>&1; }
expect_version() {
	[ "$(version)" = "$2" ] || { echo "version of $1: got $(version), want $2" >&2; failed=1; }
}
expect_version "an archive" 1.2.0
echo junk >"$room/sources/VERSION"
expect 1 "got 'junk', want a release such as 0.1.0" "a file VERSION without a release" "$room/sources/third_party/version.sh"
echo 1.2.0 >"$room/sources/VERSION"
in_git init
expect_version "a repository without a commit" 1.2.0+unknown
in_git add . && in_git commit -m a
commit=1.2.0+g$(git -C "$room/sources" rev-parse --short=7 HEAD)
expect_version "a commit" "$commit"
in_git tag v1.1.0
expect_version "a tag of another release" "$commit"
in_git tag v1.2.0
expect_version "the tag of the release" 1.2.0
echo >>"$room/sources/third_party/version.sh"
expect_version "the tag and changes" "$commit.dirty"
expect 1 "want the output of third_party/version.sh" "a version that is none" python3 wheel.py "$room/one" "next week" $platform "$room"

# A wheel must depend only on its contents and SOURCE_DATE_EPOCH, and not on its folder or the time.
tree "$room/one"
sleep 2.1 # zip files have a time resolution of two seconds
tree "$room/two"
mkdir "$room/out" "$room/again"
export SOURCE_DATE_EPOCH=1700000000
expect 0 "" "a wheel" python3 wheel.py "$room/one" 1.2.0 $platform "$room/out"
expect 0 "" "the same wheel" python3 wheel.py "$room/two" 1.2.0 $platform "$room/again"
wheel=hetero_train-1.2.0-py3-none-$platform.whl
cmp "$room/out/$wheel" "$room/again/$wheel" || failed=1
expect 0 "" "a wheel of a commit" python3 wheel.py "$room/one" 1.2.0+gabc1234.dirty $platform "$room/again"
[ -e "$room/again/hetero_train-1.2.0.dev0+gabc1234.dirty-py3-none-$platform.whl" ] || { echo "a wheel of a commit: got $(ls "$room/again")" >&2; failed=1; }
chmod 644 "$room/two/bin/hetero-train"
expect 1 "no executable bin/hetero-train" "a release without the program" python3 wheel.py "$room/two" 1.2.0 $platform "$room/again"

# A release with the GPU device must have the extra cuda, which names NVIDIA's libraries.
metadata() { python3 -c 'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); print(z.read([n for n in z.namelist() if n.endswith("/METADATA")][0]).decode().split("\n\n")[0])' "$1"; }
if metadata "$room/out/$wheel" | grep -q cuda; then echo "a wheel without the GPU device: got the extra cuda, want none" >&2; failed=1; fi
cp "$room/one/lib/hetero-train/liba.so" "$room/one/lib/hetero-train/libhetero_cuda.so"
mkdir "$room/gpu"
expect 0 "" "a wheel with the GPU device" python3 wheel.py "$room/one" 1.2.0 $platform "$room/gpu"
for line in "Provides-Extra: cuda" "Requires-Dist: nvidia-cudnn-cu13>=9.20.0.48,<10; extra == 'cuda'" "Requires-Dist: nvidia-cublas>=13.1.0.3,<14; extra == 'cuda'"; do
	metadata "$room/gpu/$wheel" | grep -qxF "$line" || { echo "a wheel with the GPU device: its METADATA has no line $line: $(metadata "$room/gpu/$wheel")" >&2; failed=1; }
done
rm "$room/one/lib/hetero-train/libhetero_cuda.so"

# RECORD must contain the hash of every file.
expect 0 "" "hashes of RECORD" python3 - "$room/out/$wheel" <<'PY'
import base64, csv, hashlib, os, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
rows = list(csv.reader(wheel.read("hetero_train-1.2.0.dist-info/RECORD").decode().splitlines()))
assert sorted(r[0] for r in rows) == sorted(wheel.namelist()), "RECORD and the wheel list different files"
for path, digest, size in rows[:-1]:
    content = wheel.read(path)
    want = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    assert (digest, size) == (want, str(len(content))), f"{path}: got {digest} {size}, want {want} {len(content)}"
modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in wheel.infolist()}
package = [n for n in os.listdir("../deploy/pytorch/hetero_train") if n.endswith((".py", ".typed"))]
assert "balancer.py" in package
for name in package:
    with open("../deploy/pytorch/hetero_train/" + name, "rb") as file:
        assert wheel.read("hetero_train/" + name) == file.read(), f"the wheel has another {name}"
assert modes["hetero_train-1.2.0.data/scripts/hetero-train"] == 0o755, modes
assert modes["hetero_train-1.2.0.data/data/share/hetero-train/configs/a.toml"] == 0o644, modes
PY

# pip must put the program into bin/ of the environment, and the libraries into lib/hetero-train.
if python3 -m venv "$room/venv" >/dev/null 2>&1; then
	expect 0 "" "pip install" "$room/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index "$room/out/$wheel"
	expect 0 "bin/hetero-train devices" "the installed program" "$room/venv/bin/hetero-train" devices
	expect 0 "$room/venv/bin/hetero-train" "the program that the package finds" "$room/venv/bin/python" -c '
import os, sys, sysconfig, types
package = sys.modules["hetero_train"] = types.ModuleType("hetero_train")  # its own code needs PyTorch
package.__path__ = [os.path.join(sysconfig.get_path("purelib"), "hetero_train")]
os.environ["PATH"] = ""
os.environ.pop("HETERO_TRAIN", None)
from hetero_train.program import find_program
print(find_program())'
	[ -e "$room/venv/lib/hetero-train/liba.so" ] || { echo "pip install: no lib/hetero-train/liba.so" >&2; failed=1; }
else
	echo "dist_test: python3-venv is missing, pip install is not tested" >&2
fi

# check_elf must accept the tree. It must find a function of a later glibc, a missing library and a missing run path.
expect 0 "5 programs and libraries" "libraries that need nothing" ./dist_check.sh --elf "$room/one"
if [ "$(printf '2.29\n%s\n' "$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)" | sort -V | head -n 1)" = 2.29 ]; then
	echo 'extern "C" double exp(double); double g(double x) { return exp(x); }' |
		${CXX:-c++} -O2 -shared -fPIC -Wl,-rpath,'$ORIGIN' -nodefaultlibs -x c++ -o "$room/one/lib/hetero-train/liba.so" - -lm
	expect 1 "liba.so needs glibc 2.29, want 2.28 or older: exp" "a function of a later glibc" ./dist_check.sh --elf "$room/one"
fi
tree "$room/one"
echo 'int h() { return 2; }' | ${CXX:-c++} -shared -fPIC -nodefaultlibs -Wl,-soname,libother.so.1 -x c++ -o "$room/libother.so" -
echo 'extern int h(); int k() { return h(); }' |
	${CXX:-c++} -shared -fPIC -nodefaultlibs -Wl,-rpath,'$ORIGIN' -x c++ -o "$room/one/lib/hetero-train/libb.so" - -x none "$room/libother.so"
expect 1 "libb.so needs libother.so.1, which is neither" "a library that is not there" ./dist_check.sh --elf "$room/one"
tree "$room/one"
echo 'int h() { return 2; }' | ${CXX:-c++} -shared -fPIC -nodefaultlibs -x c++ -o "$room/one/lib/hetero-train/libc.so" -
expect 1 "does not search its own folder" "a library without a run path" ./dist_check.sh --elf "$room/one"

# machines_table.py must replace the rows that this checkout has run, and keep the other rows of the page.
result() { printf '%s\t' "$1" 61 1500 15 "$2" abc1234 2026-11-29 2 && echo 240; }
head='| System | User | From | Compiler | Installation, s | CPU time of the installation, s | Installation, MB | Training, s | Loss | Commit | Day | Cores |
|---|---|---|---|---|---|---|---|---|---|---|---|'
old='| Debian 12 | ordinary user | source | gcc | 1 | 2 | 3 | 4 | 5.000000 | old | 2026-11-28 | 8 |'
page() { printf 'before\n<!-- machines -->\n%s\n<!-- end of machines -->\nafter\n' "$1"; }
page "$head
$old
| Debian 11 | root | release |  | 9 | 9 | 9 | 9 | 9.000000 | old | 2026-11-28 | 8 |" >"$room/page.md"
{ result sid/root/source/clang 3.96417133 && result bullseye/root/release/none 3.96417133; } >"$room/results.tsv"
cp "$room/page.md" "$room/unchanged.md"
new='61 | 240 | 1500 | 15 | 3.964171 | abc1234 | 2026-11-29 | 2 |'
expect 0 "| Debian sid | root | source | clang | $new" "a table" ./machines_table.py "$room/results.tsv" "$room/page.md"
cmp -s "$room/page.md" "$room/unchanged.md" || { echo "a table without --write: the page was changed" >&2; failed=1; }
expect 0 "" "a table for a page" ./machines_table.py "$room/results.tsv" "$room/page.md" --write
page "$head
| Debian 11 | root | release |  | $new
$old
| Debian sid | root | source | clang | $new" | diff - "$room/page.md" >&2 || { echo "a table for a page: got the difference above" >&2; failed=1; }
page "$head
| Debian 12 | root | release |  | 1 | 2 | 3 |" >"$room/page.md"
expect 1 "got 7 columns, want 12" "another table" ./machines_table.py "$room/results.tsv" "$room/page.md" --write
echo "sid/root/source/clang 1" >"$room/short.tsv"
expect 1 "got 1 fields, want 9" "a short result" ./machines_table.py "$room/short.tsv" "$room/unchanged.md"
expect 1 "want one line <!-- machines -->" "a page without a table" ./machines_table.py "$room/results.tsv" "$room/results.tsv"
exit $failed
