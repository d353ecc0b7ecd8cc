#!/usr/bin/env bash
# Downloads Debian libraries for arm64 into third_party/.arm64, where `make ARCH=arm64` finds them: Gloo (ranks on
# several machines) and libturbojpeg (fast JPEG decoding). The script needs apt-get and dpkg-deb, but no root, and
# installs nothing. A second call does nothing. third_party/.arm64/files.tsv lists the files: package, version, source
# package, path.
#
#   arm64.sh [PACKAGE…]
set -euo pipefail
cd "$(dirname "$0")"

packages=("$@")
[ $# -gt 0 ] || packages=(libgloo-dev libturbojpeg0-dev)
[ ! -e .arm64 ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/tree"
touch "$work/status"
# arm64 runs apt-get for arm64, with its own package lists and an empty list of installed packages.
arm64() {
	apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$work" -o Dir::State::status="$work/status" \
		-o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"
}
arm64 update
arm64 install -y --no-install-recommends --download-only "${packages[@]}"
# The cross compiler already contains these libraries.
rm -f "$work"/archives/{libc6,libc6-dev,libgcc-s1,libstdc++6,libcrypt1,libcrypt-dev,linux-libc-dev,gcc-*-base}_*.deb
for file in "$work"/archives/*.deb; do
	dpkg-deb -x "$file" "$work/tree"
	from=$(dpkg-deb -W --showformat='${Package}\t${Version}\t${source:Package} ${source:Version}' "$file")
	dpkg-deb --fsys-tarfile "$file" | tar -tf - | awk -v from="$from" '!/\/$/ { sub(/^\./, ""); print from "\t" $0 }' >>"$work/tree/files.tsv"
done
chmod 755 "$work/tree"
mv "$work/tree" .arm64
echo "arm64: third_party/.arm64 has ${packages[*]} and what they need"
