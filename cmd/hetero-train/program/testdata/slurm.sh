#!/bin/bash
# Starts Slurm on the machines of cluster.sh: partition fast with a1 and a2, partition slow with b1. Then runs a command.
#
#   cluster.sh FOLDER a1,a2,b1 slurm.sh FOLDER COMMAND...
set -euo pipefail
folder=$1
shift
mkdir -m 700 "$folder/state" "$folder"/spool-{a1,a2,b1}
(umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
self=$(hostname -s)
cat >"$folder/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$self(10.78.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CryptoType=crypto/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MailProg=/bin/true
SwitchType=switch/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,requeue_delay=1
SlurmdParameters=config_overrides
KillWait=30
NodeName=a1 NodeAddr=10.78.0.1 CPUs=8
NodeName=a2 NodeAddr=10.78.0.2 CPUs=8
NodeName=b1 NodeAddr=10.78.0.3 CPUs=8
PartitionName=fast Nodes=a1,a2 Default=YES
PartitionName=slow Nodes=b1
END
munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munge.pid" \
	--log-file="$folder/munge.log" --seed-file="$folder/munge.seed"
until [ -S "$folder/munge.socket" ]; do sleep 0.1; done
export SLURM_CONF=$folder/slurm.conf
slurmctld -L "$folder/slurmctld.log"
for host in a1 a2 b1; do on $host slurmd -N $host -L "$folder/$host.log"; done
for _ in $(seq 300); do
	[ "$(sinfo --noheader --Node --format %T | sort -u)" != idle ] || break
	sleep 0.2
done
"$@"
