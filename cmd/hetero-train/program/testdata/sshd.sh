#!/bin/bash
# Starts sshd on the machines of cluster.sh, each with its own home folder, and runs a command. FOLDER/ssh_config is the
# configuration of ssh for these machines.
#
#   cluster.sh FOLDER HOST,HOST,... sshd.sh FOLDER HOST,HOST,... COMMAND...
set -euo pipefail
folder=$1 hosts=${2//,/ }
shift 2
ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
ssh-keygen -q -t ed25519 -N '' -f "$folder/host_key"
cp "$folder/key.pub" "$folder/authorized"
for host in $hosts; do
	mkdir -m 700 "$folder/home-$host"
	echo "$host $(cut -d ' ' -f 1,2 "$folder/host_key.pub")" >>"$folder/known_hosts"
done
cat >"$folder/sshd_config" <<END
HostKey $folder/host_key
AuthorizedKeysFile $folder/authorized
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
END
cat >"$folder/ssh_config" <<END
IdentityFile $folder/key
UserKnownHostsFile $folder/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
User root
END
for host in $hosts; do
	on "$host" "$(command -v sshd)" -f "$folder/sshd_config" -E "$folder/sshd-$host.log"
done
"$@"
