# Starts a container: pod HOST IMAGE HOSTS MOUNTS USER GROUP FSGROUP COUNT [NAME=VALUE...] COMMAND...
# MOUNTS contains lines "TYPE SOURCE TARGET OPTIONS". The command replaces this shell, so the command is process 1.
set -euo pipefail
host=$1 image=$2 hosts=$3 mounts=$4 user=$5 group=$6 fsgroup=$7 count=$8
shift 8
variables=("${@:1:count}")
shift "$count"
hostname "$host"
mount --make-rprivate /
root=/mnt # the mount is visible only in this namespace
mount -t tmpfs -o mode=755 tmpfs $root
mkdir $root/usr $root/etc $root/proc $root/sys $root/dev
mount --bind /usr $root/usr
mount --bind "$image" $root/usr/local
for folder in /bin /sbin /lib /lib32 /lib64; do
	if [ -L $folder ]; then
		cp -a $folder $root$folder
	elif [ -d $folder ]; then
		mkdir $root$folder && mount --bind $folder $root$folder
	fi
done
cp /etc/passwd /etc/group /etc/nsswitch.conf /etc/ld.so.cache $root/etc
touch $root/etc/hosts && mount --bind "$hosts" $root/etc/hosts
mount -t proc proc $root/proc
mount --rbind /sys $root/sys
for device in null zero full random urandom; do
	touch $root/dev/$device && mount --bind /dev/$device $root/dev/$device
done
while read -r type source target options; do
	[ -n "$type" ] || continue
	mkdir -p "$root$target"
	case $type in
	bind) mount --bind "$source" "$root$target" && mount -o "remount,bind,$options" "$root$target" ;;
	tmpfs) mount -t tmpfs -o "$options" tmpfs "$root$target" ;;
	esac
done <<<"$mounts"
mount -o remount,ro $root
exec chroot $root setpriv --reuid "$user" --regid "$group" --groups "$fsgroup" --bounding-set=-all --inh-caps=-all \
	--no-new-privs env -i "${variables[@]}" "$@"
