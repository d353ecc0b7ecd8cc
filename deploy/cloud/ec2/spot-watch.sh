#!/bin/sh
# Waits for the interruption notice of an EC2 spot instance, then runs a command once, and ends with its exit code.
#
#   spot-watch.sh systemctl --no-block stop hetero-train.service
#
# The notice comes two minutes before the interruption. Without a watcher, the interruption would end the training
# without a save. If a setting is invalid, the watcher therefore warns and uses the default.
#
# Environment variables:
#   SPOT_INTERVAL      time between two requests, in the format of sleep (default: 5 seconds)
#   SPOT_REBALANCE=1   also run the command at a rebalance recommendation, which may come earlier than the notice, or
#                      without an interruption. The watcher ignores a recommendation that exists at its first request,
#                      because the user has started the training in spite of it
#   AWS_EC2_METADATA_SERVICE_ENDPOINT   address of the metadata service, as for the tools of AWS
#
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
case ${interval%[smhd]} in # GNU sleep accepts these suffixes
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
recommendation=first # state of recommendations: first, watched (none at the first request), or ignored
[ "${SPOT_REBALANCE:-0}" = 1 ] || recommendation=ignored
token=
state=unknown

# get PATH [OPTION...] prints the body, and the HTTP status on a last line. curl reads the header with the token from
# standard input, because all users of the machine can read command lines.
get() {
	path=$1
	shift
	printf 'header = "%s"\n' "$header" |
		curl --silent --max-time 5 --noproxy '*' --config - --write-out '\n%{http_code}' "$@" "$endpoint$path"
}

# look PATH returns 0 if the service has this notice, and stores the notice in $answer.
look() {
	header="X-aws-ec2-metadata-token: $token"
	answer=$(get "$1")
	status=${answer##*
}
	answer=${answer%
*}
	[ "$status" = 200 ]
}

# say STATE TEXT logs the text if the state has changed.
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
