#!/bin/bash
# Creates a network of machines from network namespaces, and runs a command on the central machine.
#
#   unshare --net --mount --pid --fork --kill-child --mount-proc cluster.sh FOLDER HOST,HOST,... COMMAND...
#
# Each machine has an address 10.78.0.N and its own host name; /etc/hosts lists all machines. "on HOST COMMAND..." runs
# a command on a machine. The controller, where COMMAND runs, is 10.78.0.254. FOLDER is for files of the servers. All
# machines vanish when the command ends. If a folder FOLDER/home-HOST exists, it is /root on this machine.
set -euo pipefail
folder=$1 hosts=${2//,/ }
shift 2
mount -t tmpfs none /run
mkdir -p /run/netns /run/sshd "$folder"
ip link add switch type bridge
ip addr add 10.78.0.254/24 dev switch
ip link set switch up
ip link set lo up
printf '127.0.0.1 localhost\n10.78.0.254 %s\n' "$(hostname -s)" >"$folder/hosts"
number=0
for host in $hosts; do
	number=$((number + 1))
	echo "10.78.0.$number $host" >>"$folder/hosts"
	ip netns add "$host"
	ip link add "to$number" type veth peer name eth0 netns "$host"
	ip link set "to$number" master switch up
	ip -n "$host" addr add "10.78.0.$number/24" dev eth0
	ip -n "$host" link set lo up
	ip -n "$host" link set eth0 up
done
mount --bind "$folder/hosts" /etc/hosts
# shellcheck disable=SC2016 # sh expands the variables
on() { # HOST COMMAND...
	local host=$1
	shift
	nsenter "--net=/run/netns/$host" unshare --uts --mount sh -c \
		'hostname "$0" && { [ ! -d "$1" ] || mount --bind "$1" /root; } && shift && exec "$@"' "$host" "$folder/home-$host" "$@"
}
export folder
export -f on
echo cluster # all privileges are there
"$@"
