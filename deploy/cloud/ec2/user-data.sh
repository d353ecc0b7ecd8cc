#!/bin/sh
# Prints the user data (cloud-init) of an EC2 instance that trains, with the files of this folder.
#
#   RELEASE=https://… TRAIN_ARGUMENTS='-c configs/resnet50.toml …' deploy/cloud/ec2/user-data.sh >user-data.yaml
#
# RELEASE is the address of the archive of "make dist", for example a presigned address of S3.
# TOKEN_COMMAND is a command that prints the token of a run on several machines, such as:
#   aws secretsmanager get-secret-value --secret-id hetero-token --query SecretString --output text
# The token itself does not belong into user data, which every program of the instance can read.
# docs/cloud.md explains this file.
set -eu
cd "$(dirname "$0")"
: "${RELEASE:?set the address of the archive of a release}" "${TRAIN_ARGUMENTS:?set the arguments of hetero-train train}"
TOKEN_COMMAND=${TOKEN_COMMAND:-}

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
      curl -fsSL --retry 5 $(quoted "$RELEASE") | tar -xz --strip-components=1 -C /opt/hetero-train
      install -d -o hetero -g hetero /var/lib/hetero-train
      ln -sfn /opt/hetero-train/share/hetero-train/configs /var/lib/hetero-train/configs
$([ -z "$TOKEN_COMMAND" ] || printf '      (umask 077; %s >/etc/hetero-train/token)\n      chown hetero: /etc/hetero-train/token\n' "$TOKEN_COMMAND")
      systemctl daemon-reload
      systemctl enable --now hetero-train.service hetero-spot.service
runcmd:
  - [/opt/hetero-train/install.sh]
END
