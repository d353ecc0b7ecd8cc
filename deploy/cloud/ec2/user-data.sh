#!/bin/sh
# Prints the user data (cloud-init) of an EC2 instance that trains, with the files of this folder.
#
#   RELEASE=https://… SHA256=… TRAIN_ARGUMENTS='-c configs/resnet50.toml …' deploy/cloud/ec2/user-data.sh >user-data.yaml
#
# RELEASE is the address of the archive of "make dist", for example a presigned address of S3, and SHA256 the hash of the
# archive (sha256sum). The instance repeats a download that fails.
# TOKEN_COMMAND is a command that prints the token of a run on several machines, such as:
#   aws secretsmanager get-secret-value --secret-id hetero-token --query SecretString --output text
# The token itself does not belong into user data, which every program of the instance can read.
# docs/cloud.md explains this file.
set -eu
cd "$(dirname "$0")"
: "${RELEASE:?set the address of the archive of a release}" "${SHA256:?set the output of sha256sum for the archive}"
: "${TRAIN_ARGUMENTS:?set the arguments of hetero-train train}"
TOKEN_COMMAND=${TOKEN_COMMAND:-}
SHA256=${SHA256%% *} # without the name of the file
case $RELEASE in
*[\"\\\ ]*)
	echo "user-data.sh: RELEASE: got $RELEASE, want an address without spaces, quotes and backslashes" >&2
	exit 2
	;;
esac
printf '%s\n' "$SHA256" | grep -Eqx '[0-9a-f]{64}' || {
	echo "user-data.sh: SHA256: got $SHA256, want 64 hexadecimal digits" >&2
	exit 2
}

# indented N FILE: the file, as a block of YAML.
indented() { sed "s/^\(.\)/$(printf "%$1s" '')\1/" "$2"; }
# quoted TEXT: the text, as a word of a shell.
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }

cat <<END
#cloud-config
users:
  - default
  - name: hetero
    system: true
    shell: /usr/sbin/nologin
    homedir: /var/lib/hetero-train
write_files:
  - path: /etc/hetero-train/environment
    permissions: "0644"
    content: |
      HETERO_TOKEN_FILE=$([ -z "$TOKEN_COMMAND" ] || echo /etc/hetero-train/token)
      TRAIN_ARGUMENTS=$TRAIN_ARGUMENTS
  - path: /etc/systemd/system/hetero-train.service
    permissions: "0644"
    content: |
$(indented 6 hetero-train.service)
  - path: /etc/systemd/system/hetero-spot.service
    permissions: "0644"
    content: |
$(indented 6 hetero-spot.service)
  - path: /opt/hetero-train/bin/spot-watch.sh
    permissions: "0755"
    content: |
$(indented 6 spot-watch.sh)
  - path: /opt/hetero-train/install.sh
    permissions: "0700"
    content: |
      #!/bin/sh
      set -eu
      umask 022
      archive=/opt/hetero-train/release.tar.gz
      # not as an argument, because all users can read command lines, and a presigned address is a secret
      until printf 'url = "%s"\n' $(quoted "$RELEASE") | curl -fsSL --retry 5 --config - -o \$archive; do
          echo "the download of the release failed; it is repeated in 30 s" >&2
          sleep 30
      done
      echo "$SHA256  \$archive" | sha256sum -c -
      tar -xzf \$archive --strip-components=1 -C /opt/hetero-train
      rm \$archive
      install -d -o hetero -g hetero /var/lib/hetero-train
      ln -sfn /opt/hetero-train/share/hetero-train/configs /var/lib/hetero-train/configs
$([ -z "$TOKEN_COMMAND" ] || printf '      (umask 077; %s >/etc/hetero-train/token)\n      chown hetero: /etc/hetero-train/token\n' "$TOKEN_COMMAND")
      systemctl daemon-reload
      systemctl enable --now hetero-train.service
runcmd:
  - [/opt/hetero-train/install.sh]
END
