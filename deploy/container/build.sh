#!/usr/bin/env bash
# Builds a container image of a release.
#
#   deploy/container/build.sh [--cuda] [--release FILE] [--engine ENGINE]     as root, for debootstrap
#   --cuda      include the NVIDIA libraries that GPUs need; the release must be one of `make dist CUDA=on`
#   --release   archive of `make dist`; default: the archive of this commit in dist/, with GPU code if --cuda is given
#   --engine    buildah, podman or docker; default: the first of them in PATH
#   --help      print this text
#
# buildah and podman need no daemon. The result is in build/container:
#   hetero-train-VERSION-KIND.tar.gz       image for `docker load` and `podman load`, with the tag hetero-train:VERSION-KIND
#   hetero-train-VERSION-KIND.spdx.json    list of all software in the image, in SPDX; the image also contains this list
#
# The image has no base image. It contains files of a few Debian 13 packages, and the release. Two builds of one commit
# from the same state of the Debian archive give the same image. With docker they do not, because its builder records
# the time.
#
# Environment variables:
#   HETERO_DEBIAN_MIRROR     address of the Debian archive; empty: the default of debootstrap
#   HETERO_DEBIAN_SECURITY   address of the security archive; empty: that of the Debian archive with "-security";
#                            off: without packages of the security archive
#
# Later builds use the same Debian files until you remove build/container/root-trixie.
#
# Exit codes: 0 the image is built; 1 the build failed, or a program or space is missing; 2 arguments are invalid, or
# the release is of another kind than the image.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/../.."
umask 022

fail() { echo "container: $*" >&2; exit 1; }
wrong() { echo "container: $*" >&2; exit 2; }
usage() {
	echo "container: $*" >&2
	echo "usage: deploy/container/build.sh [--cuda] [--release FILE] [--engine buildah|podman|docker]; --help explains it" >&2
	exit 2
}
. scripts/roots.sh
system=trixie
packages=(base-files ca-certificates libc6 libsharpyuv0 libwebp7 tzdata) # the program opens libwebp, which needs libsharpyuv
place=$PWD/build/container
root=$place/root-$system
kind=cpu release='' engine=''
while [ $# -gt 0 ]; do
	case $1 in
	--cuda) kind=cuda ;;
	--release)
		[ -n "${2-}" ] || usage "--release: got no value, want the archive of a release"
		release=$2 && shift
		;;
	--engine)
		case ${2-} in
		buildah | podman | docker) engine=$2 && shift ;;
		*) usage "--engine: got '${2-}', want buildah, podman or docker" ;;
		esac
		;;
	-h | --help)
		sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' deploy/container/build.sh
		exit 0
		;;
	*) usage "got $1, want --cuda, --release FILE, --engine ENGINE or --help" ;;
	esac
	shift
done
[ $kind = cpu ] || packages+=(zlib1g) # needed by cuDNN
if [ -n "$release" ]; then
	release=$(cd "$caller" && realpath -m "$release")
	[ -f "$release" ] || usage "--release: got $release, which is no file; want an archive of make dist"
else
	release=dist/hetero-train-$(third_party/version.sh)-linux-x86_64.tar.gz
	[ -e "$release" ] || fail "$release is missing; run: make dist$([ $kind = cpu ] || echo ' CUDA=on'), or name an archive with --release"
fi
[[ $(basename "$release") =~ ^hetero-train-(.+)-linux-x86_64\.tar\.gz$ ]] ||
	usage "--release: got $release, want hetero-train-VERSION-linux-x86_64.tar.gz"
version=${BASH_REMATCH[1]}
listing=$(mktemp) && trap 'rm -f "$listing"' EXIT
tar --utc --full-time -tvf "$release" >"$listing" 2>/dev/null || wrong "$release is no archive, or is damaged; run: make dist"
gpu=no
! grep -q '/lib/hetero-train/libhetero_cuda\.so$' "$listing" || gpu=yes
# Releases with and without GPU code have the same name, so the script checks the kind.
case $kind-$gpu in
cuda-no) wrong "$release has no GPU device; run: make dist CUDA=on" ;;
cpu-yes) wrong "$release has GPU code, which the image for CPUs does not need; run: make dist, or use --cuda" ;;
esac
need_roots
if [ -z "$engine" ]; then
	for engine in buildah podman docker; do
		command -v $engine >/dev/null && break
		engine=''
	done
	[ -n "$engine" ] || fail "there is no buildah, podman or docker in PATH; run: apt-get install buildah"
fi
command -v "$engine" >/dev/null || fail "$engine is not in PATH"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(awk 'NR == 1 { print $4 " " $5 }' "$listing" | date -u -f - +%s)}
export SOURCE_DATE_EPOCH
context=$place/$kind
name=hetero-train-$version-$kind
tag=hetero-train:${version//+/-}-$kind # a tag must not contain a plus sign
space=700
[ $kind = cpu ] || space=6500
need_space "$place" $space "an image"

# The folder becomes the build context. It must contain only files of this build.
rm -rf "$context"
mkdir -p "$context"/{base,release,cuda}
# secure_root upgrades the packages of the root from Debian's security archive. It does so only once.
secure_root() {
	local from=${HETERO_DEBIAN_SECURITY:-}
	[ "$from" != off ] && [ ! -e "$root/.secure" ] || return 0
	[ -n "$from" ] || from=$(awk '$1 == "deb" { sub("/+$", "", $2); print $2 "-security"; exit }' "$root/etc/apt/sources.list")
	echo "deb $from $system-security main" >"$root/etc/apt/sources.list.d/security.list"
	inside "$root" sh -ec 'apt-get -o APT::Update::Error-Mode=any update && DEBIAN_FRONTEND=noninteractive apt-get upgrade -y && apt-get clean' >"$root.log" 2>&1 ||
		{ tail -n 5 "$root.log" >&2; fail "cannot upgrade from $from; set HETERO_DEBIAN_SECURITY to another address, or to off"; }
	slim_root "$root"
	touch "$root/.secure" "$root/.ready"
}

make_root $system "$root" ca-certificates,libwebp7
secure_root
[ -e "$root/.secure" ] || echo "container: HETERO_DEBIAN_SECURITY is off: the image may lack security fixes of Debian" >&2
echo "container: Debian $system of $(date -u -r "$root/.ready" +%Y-%m-%d); for newer packages, first run: rm -rf ${root#"$PWD/"}"

# keep matches the paths of Debian files that the image needs.
keep='^/(usr/)?(lib/x86_64-linux-gnu/[^/]+\.so[^/]*|lib64/[^/]+|lib/os-release|share/zoneinfo/.+|share/common-licenses/.+|share/doc/[^/]+/copyright)$|^/etc/(debian_version|os-release)$'

# copy_base copies files of Debian packages, and creates the folders to which a container writes.
copy_base() {
	local base=$context/base file
	mkdir -p "$base"/{usr/{bin,lib,lib64,sbin},etc/ssl/certs,dev,proc,sys,run,tmp,work/experiments,cache,var/lib/dpkg/status.d}
	for file in bin lib lib64 sbin; do ln -s usr/$file "$base/$file"; done
	inside "$root" dpkg -L "${packages[@]}" | grep -E "$keep" | grep -v '/zoneinfo/right/' | sort -u | sed 's,^/\(lib\(64\)\?\)/,usr/\1/,; s,^/,,' |
		while read -r file; do [ ! -d "$root/$file" ] && echo "$file"; done >"$place/files"
	tar -C "$root" -cf - -T "$place/files" | tar -C "$base" -xf -
	cp "$root/etc/ssl/certs/ca-certificates.crt" "$base/etc/ssl/certs/"
	# Vulnerability scanners find the list of packages here, as in distroless images.
	for file in "${packages[@]}"; do inside "$root" dpkg-query -s "$file" >"$base/var/lib/dpkg/status.d/$file"; done
	printf '%s\n' 'root:x:0:0:root:/work:/usr/sbin/nologin' 'hetero:x:65532:65532:hetero-train:/work:/usr/sbin/nologin' >"$base/etc/passwd"
	printf '%s\n' 'root:x:0:' 'hetero:x:65532:' >"$base/etc/group"
	echo 'hosts: files dns' >"$base/etc/nsswitch.conf"
	ln -s /opt/hetero-train/share/hetero-train/configs "$base/configs"
	# A new named volume at such a folder gets the folder's mode, so any user that --user sets can write there.
	chmod 1777 "$base"/{tmp,work,work/experiments,cache}
}

# copy_cuda copies the GPU libraries that the program opens. The loader searches their folder without a cache.
copy_cuda() {
	local to=$context/cuda/usr/lib/x86_64-linux-gnu from=third_party/.cuda/nvidia wheel
	python3 third_party/cuda.py
	mkdir -p "$to"
	cp -L $from/cu13/lib/lib{cublas,cublasLt,cupti,nvrtc}.so.13 $from/cu13/lib/libnvrtc-builtins.so.13.* $from/cudnn/lib/libcudnn*.so.9 $from/nccl/lib/libnccl.so.2 "$to/"
	for wheel in nvidia_cublas nvidia_cuda_cupti nvidia_cuda_nvrtc nvidia_cudnn_cu13 nvidia_nccl_cu13; do
		mkdir -p "$context/cuda/usr/share/doc/$wheel"
		cp $from/licences/$wheel/* "$context/cuda/usr/share/doc/$wheel/"
		awk -v wheel=$wheel '$2 ~ "^" wheel "-" { print $2 }' third_party/cuda.sha256
	done >"$context/wheels"
	# Two of these libraries need GCC's libraries. The release has GCC's libraries in its own folder, and its GPU device
	# loads them first.
	local file needed
	for file in "$to"/*; do
		for needed in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
			[ -e "$to/$needed" ] || [ -e "$context/base/usr/lib/x86_64-linux-gnu/$needed" ] || [ -e "$context/release/lib/hetero-train/$needed" ] ||
				fail "$(basename "$file") needs $needed, which the image does not have"
		done
	done
}

copy_base
tar -C "$context/release" --strip-components=1 --no-same-owner -xf "$release"
if [ $kind = cuda ]; then copy_cuda; fi
python3 deploy/container/sbom.py "$context" "$version" $kind >"$place/$name.spdx.json"
cp "$place/$name.spdx.json" "$context/release/share/doc/hetero-train/sbom.spdx.json"
find "$context" -type d ! -perm -1000 -exec chmod 755 {} +
find "$context" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +

# revision_of prints the commit of the release, with -dirty if files were changed. It also works if the checkout belongs
# to another user.
revision_of() {
	local commit=${version#*+g} full
	case $version in
	*+unknown) echo unknown ;;
	*+g*)
		full=$(git -c safe.directory='*' rev-parse --verify -q "${commit%.dirty}^{commit}" 2>/dev/null || echo "${commit%.dirty}")
		[ "$commit" = "${commit%.dirty}" ] || full=$full-dirty
		echo "$full"
		;;
	*) git -c safe.directory='*' rev-list -n 1 "v$version" 2>/dev/null || echo "v$version" ;;
	esac
}
revision=$(revision_of)
licences=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["packages"][0]["licenseDeclared"])' "$place/$name.spdx.json")
arguments=(--target "$kind" -t "$tag" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "LICENSES=$licences"
	--build-arg "CREATED=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" -f "$PWD/deploy/container/Containerfile")
rm -f "$place/$name".tar*
for file in "$place"/hetero-train-*-$kind.{tar.gz,spdx.json}; do # removes results of other versions
	[[ $file == "$place/$name".* ]] || rm -f "$file"
done
case $engine in
buildah | podman)
	command=("$engine" --root "$place/storage" --runroot "$place/runroot")
	trap '"${command[@]}" rmi -af >/dev/null 2>&1 || :; rm -rf "$place/storage" "$place/runroot" "$listing"' EXIT
	if [ "$engine" = buildah ]; then verb=bud; else verb=build; fi
	"${command[@]}" $verb --layers --format oci --timestamp "$SOURCE_DATE_EPOCH" --iidfile "$place/id" "${arguments[@]}" "$context" >"$place/build.log" 2>&1 ||
		{ tail -n 5 "$place/build.log" >&2; fail "$engine failed; its output is in build/container/build.log"; }
	"${command[@]}" push -q "$(cat "$place/id")" "docker-archive:$place/$name.tar:$tag" >>"$place/build.log" 2>&1 ||
		{ tail -n 5 "$place/build.log" >&2; fail "$engine push failed; its output is in build/container/build.log"; }
	;;
docker)
	docker build "${arguments[@]}" "$context" >"$place/build.log" 2>&1 ||
		{ tail -n 5 "$place/build.log" >&2; fail "docker failed; its output is in build/container/build.log"; }
	docker save -o "$place/$name.tar" "$tag"
	;;
esac
id=$(tar -xOf "$place/$name.tar" manifest.json | sed -n 's/.*"Config":"\(blobs\/sha256\/\)\?\([0-9a-f]*\).*/\2/p')
size=$(stat -c %s "$place/$name.tar")
chmod 644 "$place/$name.tar"
gzip -n "$place/$name.tar"
rm -rf "$context"
mb() { echo "$((($1 + 500000) / 1000000)) MB"; }
echo "container: $tag, image id sha256:$id, $(mb "$size"), compressed $(mb "$(stat -c %s "$place/$name.tar.gz")"): build/container/$name.tar.gz"
