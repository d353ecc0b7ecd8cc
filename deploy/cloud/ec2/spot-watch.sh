#!/bin/sh
# Waits for the interruption notice of an EC2 spot instance, then runs a command once, and ends with its exit code.
#
#   spot-watch.sh systemctl --no-block stop hetero-train.service
#
# SPOT_REBALANCE=1 also runs the command at a rebalance recommendation, which may come earlier, or without an interruption.
# A recommendation that exists before the first look has no effect: the user has started the training in spite of it.
# SPOT_INTERVAL is the time between two looks, as for sleep: 5 by default, in seconds. The notice comes two minutes before
# the interruption. With a setting that it cannot use, the watcher warns and uses the default, because without a watcher an
# interruption would end the training without a save.
# AWS_EC2_METADATA_SERVICE_ENDPOINT replaces the address of the metadata service, as in the tools of AWS.
# docs/cloud.md explains this file.
#
# Exit codes: that of the command; 2 no command, or curl is missing.
set -u
refuse() {
	printf 'spot-watch.sh: %s\n' "$1" >&2
	exit 2
}
case ${1-} in
-h | --help)
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' "$0"
	exit 0
	;;
-*) refuse "got the option $1, want a command, such as: spot-watch.sh systemctl --no-block stop hetero-train.service" ;;
'') refuse "got no command, want one, such as: spot-watch.sh systemctl --no-block stop hetero-train.service" ;;
esac
command -v curl >/dev/null || refuse "curl is missing: install it"
warn() { printf 'spot-watch.sh: warning: %s\n' "$1" >&2; }
command -v "$1" >/dev/null || warn "there is no command $1 yet: it must exist at the notice"
endpoint=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
endpoint=${endpoint%/}
interval=${SPOT_INTERVAL:-5}
interruption=/latest/meta-data/spot/instance-action
rebalance=/latest/meta-data/events/recommendations/rebalance
case ${interval%[smhd]} in # suffixes of GNU sleep
*[!0-9.]* | *.*.*) bad=yes ;;
*[1-9]*) bad='' ;;
*) bad=yes ;;
esac
if [ -n "$bad" ] || { [ "$interval" != "${interval%[smhd]}" ] && ! sleep 0s 2>/dev/null; }; then
	warn "SPOT_INTERVAL: got '$interval', want a time above 0 in seconds, such as 5; the interval is 5 s"
	interval=5
fi
case ${SPOT_REBALANCE:-0} in
0 | 1) ;;
*) warn "SPOT_REBALANCE: got '$SPOT_REBALANCE', want 0 or 1; a rebalance recommendation has no effect" ;;
esac
recommendation=first # or watched, after a first look without one; or ignored
[ "${SPOT_REBALANCE:-0}" = 1 ] || recommendation=ignored
token=
state=unknown

# get PATH [OPTION...]: the body, and the status in a last line. A header with the token is on standard input of curl,
# because all users of the machine can read command lines.
get() {
	path=$1
	shift
	printf 'header = "%s"\n' "$header" |
		curl --silent --max-time 5 --noproxy '*' --config - --write-out '\n%{http_code}' "$@" "$endpoint$path"
}

# look PATH: 0 if the service has this notice, which is then in $answer.
look() {
	header="X-aws-ec2-metadata-token: $token"
	answer=$(get "$1")
	status=${answer##*
}
	answer=${answer%
*}
	[ "$status" = 200 ]
}

# say STATE TEXT: logs a change of the state once.
say() {
	[ "$state" = "$1" ] || echo "spot-watch.sh: $2" >&2
	state=$1
}

notice() {
	if [ -z "$token" ]; then
		header="X-aws-ec2-metadata-token-ttl-seconds: 21600"
		answer=$(get /latest/api/token --request PUT)
		[ "${answer##*
}" = 200 ] || {
			say silent "no answer of the metadata service at $endpoint; the watcher asks again, with the interval $interval"
			return 1
		}
		token=${answer%
*}
	fi
	for path in "$interruption" "$rebalance"; do
		[ "$path" = "$interruption" ] || [ $recommendation != ignored ] || continue
		if look "$path"; then
			[ "$path" = "$rebalance" ] && [ $recommendation = first ] || return 0
			recommendation=ignored
			echo "spot-watch.sh: the rebalance recommendation is older than the start, and has no effect: $answer" >&2
			continue
		fi
		case $status in
		404)
			say quiet "waiting for the notice of an interruption"
			[ "$path" = "$interruption" ] || recommendation=watched
			;;
		401) token= ;; # the token has expired
		*) say silent "no answer of the metadata service at $endpoint; the watcher asks again, with the interval $interval" ;;
		esac
	done
	return 1
}

until notice; do
	sleep "$interval"
done
echo "spot-watch.sh: $path: $answer; running: $*" >&2
exec "$@"
