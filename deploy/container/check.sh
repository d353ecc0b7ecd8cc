#!/usr/bin/env bash
# Tests a container image with a real Docker engine, which the script starts. `make test-long PARTS=container` calls it.
#
#   deploy/container/check.sh IMAGE.tar.gz     as root; IMAGE.tar.gz: a CPU image of build.sh
#
# The script needs docker.io, docker-compose and curl. The engine has its own network namespace, its files are in
# build/container, and it ends with the script. It therefore does not affect other containers, networks and firewall
# rules of the machine.
#
# Exit codes: 0 all checks passed; 1 a check failed, or a program is missing; 2 arguments are invalid.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/../.."

fail() { echo "container check: $*" >&2; exit 1; }
wrong() { echo "container check: $*" >&2; exit 2; }
if [ "${1:-}" != --inside ]; then
	case ${1:-} in
	-h | --help)
		sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' deploy/container/check.sh
		exit 0
		;;
	-*) wrong "got $1, want the archive of an image, or --help" ;;
	esac
	[ $# = 1 ] || wrong "got $# arguments, want the archive of an image"
	image=$(cd "$caller" && realpath -m "$1")
	[ -f "$image" ] || wrong "got $image, which is no file; run deploy/container/build.sh"
	[ "$(id -u)" = 0 ] || fail "needs root, for a Docker engine and a network namespace"
	for program in dockerd docker docker-compose curl unshare; do
		command -v $program >/dev/null || fail "$program is missing; run: apt-get install docker.io docker-compose curl"
	done
	# All processes end with the script.
	exec unshare --net --mount --pid --fork --mount-proc "$PWD/deploy/container/check.sh" --inside "$image"
fi
archive=$2
place=$PWD/build/container/check
rm -rf "$place"
mkdir -p "$place/secrets"
export DOCKER_HOST=unix:///$place/docker.sock
here=deploy/container
checks=0

# ok WHAT prints and counts a check that passed.
ok() { checks=$((checks + 1)); echo "ok: $*"; }
now() { cut -d ' ' -f 1 /proc/uptime; }
since() { awk -v from="$1" -v to="$(now)" 'BEGIN { printf "%.1f", to - from }'; }
# wait_for SECONDS WHAT COMMAND… waits until the command succeeds.
wait_for() {
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "$what did not happen in time"
		sleep 0.2
	done
}
# want CODE TEXT COMMAND… runs the command. The exit code must be CODE, and the output must contain TEXT.
want() {
	local code=$1 text=$2 got=0 said
	shift 2
	said=$("$@" 2>&1) || got=$?
	[ $got = "$code" ] && [[ $said == *"$text"* ]] || fail "$*: got exit code $got, want $code and \"$text\": $said"
}

ip link set lo up
dockerd --data-root "$place/docker" --exec-root "$place/exec" -p "$place/docker.pid" -H "$DOCKER_HOST" >"$place/dockerd.log" 2>&1 &
engine=$!
# shellcheck disable=SC2317,SC2329 # trap calls it
finish() {
	local code=$?
	if [ $code != 0 ]; then
		docker ps -a || :
		for container in $(docker ps -aq); do echo "log of $container:" && docker logs --tail 10 "$container" || :; done
	fi
	docker ps -aq 2>/dev/null | xargs -r docker rm -fv >/dev/null 2>&1 || :
	kill $engine 2>/dev/null && wait $engine || :
	rm -rf "$place"
	exit $code
}
trap finish EXIT
wait_for 60 "the start of the Docker engine" docker info
echo "Docker $(docker version -f '{{.Server.Version}}'), cgroup version $(docker info -f '{{.CgroupVersion}}')"

start=$(now)
image=$(docker load -q -i "$archive" | sed -n 's/^Loaded image: //p')
echo "figure: docker load $(since "$start") s, size $(docker image inspect -f '{{.Size}}' "$image") bytes"
label() { docker image inspect -f "{{index .Config.Labels \"org.opencontainers.image.$1\"}}" "$image"; }
[ "$(docker image inspect -f '{{.Config.User}}' "$image")" = 65532:65532 ] || fail "the user of the image is not 65532:65532"
for name in version revision created source licenses title; do [ -n "$(label $name)" ] || fail "the label $name is empty"; done
[[ $(docker run --rm --network none "$image" version) == *"$(label version)"* ]] || fail "the label of the version is not that of the program"
docker run --rm --network none "$image" version | grep '^webp .* libwebp ' >/dev/null || fail "the program does not find libwebp in the image"
ok "labels: version $(label version), revision $(label revision), created $(label created)"

# docs/containers.md recommends these options for each container.
safe=(--read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges --memory 2g --pids-limit 2000 --init)
small=(--model simple_cnn --dataset synthetic_image --num-samples 64000 --batch-size 16 --set data.image_size=8 --set train.eval_interval=0)
logged() { docker logs "$1" 2>&1 | grep -q "$2"; }
exit_of() { docker wait "$1"; }
# written NAME prints the files that a container wrote outside its volumes. It omits docker-init, which --init mounts.
written() { docker diff "$1" | grep -vE ' /usr(/sbin(/docker-init)?)?$' || :; }

# The root file system is read-only, and all writes go to volumes. /dev/shm has 64 MB, Docker's default.
start=$(now)
docker run -d --name two "${safe[@]}" -v runs:/work -v cache:/cache "$image" train --experiment-name two --nproc-per-node 2 "${small[@]}" \
	--set train.steps=2000000 --set checkpoint.interval_steps=200 >/dev/null
wait_for 120 "the first step of two ranks" docker exec two hetero-train status two --check 1m
wait_for 120 "the first records of two ranks" sh -c "docker exec two hetero-train status two --json | grep -q '\"common\":[1-9]'"
echo "figure: docker run to the first recorded step $(since "$start") s, with up to 1 s of polling"
[ "$(docker inspect -f '{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.Memory}} {{.HostConfig.ShmSize}}' two)" = "true 2147483648 67108864" ] ||
	fail "the container has other limits"
process=$(docker inspect -f '{{.State.Pid}}' two)
grep -q '^NoNewPrivs:[[:space:]]1' "/proc/$process/status" || fail "no_new_privs is not set"
grep -q '^CapBnd:[[:space:]]0000000000000000' "/proc/$process/status" || fail "the container has capabilities"
[ "$(stat -c %u "/proc/$process")" = 65532 ] || fail "the container does not run as user 65532"
[ -z "$(written two)" ] || fail "the container wrote outside its volumes: $(written two)"
ok "two ranks train as user 65532 on a read-only root, without capabilities"

want 0 "/dev/shm has 64 MiB; only NCCL between GPUs needs it (docker run --shm-size)" docker exec two hetero-train doctor --all
want 0 "the control group allows 2.0 GiB" docker exec two hetero-train doctor --all
ok "doctor names the 64 MiB of /dev/shm with the cure, and the limit of memory"

# docker stop must make the run save.
start=$(now)
docker stop -t 120 two >/dev/null
[ "$(exit_of two)" = 75 ] || fail "docker stop: got exit code $(exit_of two), want 75: $(docker logs --tail 5 two 2>&1)"
stopped=$(since "$start")
[ -z "$(written two)" ] || fail "the container wrote outside its volumes: $(written two)"
saved=$(docker run --rm -v runs:/work:ro "$image" status two --json | grep -o '"last":[0-9]*' | head -n 1)
volume=$(docker volume inspect -f '{{.Mountpoint}}' runs)
[ -n "$(find "$volume/experiments/two/checkpoints" -name 'step-*')" ] || fail "docker stop left no checkpoint"
ok "docker stop saves and ends with exit code 75, after $stopped s, at ${saved#*:} steps"
docker start two >/dev/null
wait_for 120 "the resumed run" logged two "resum"
wait_for 120 "the resumed run" docker exec two hetero-train status two --check 1m
ok "docker start resumes the run"
docker kill -s INT two >/dev/null
[ "$(exit_of two)" = 130 ] || fail "SIGINT: got exit code $(exit_of two), want 130"
docker rm two >/dev/null
ok "SIGINT saves and ends with exit code 130"

# The program is process 1, without Docker's init process. Signals must reach it, it must notice a killed rank, and no
# zombie process may stay.
bare=("${safe[@]/--init/--rm=false}")
docker run -d --name one "${bare[@]}" -v runs:/work "$image" train --experiment-name one --nproc-per-node 2 "${small[@]}" --set train.steps=2000000 >/dev/null
wait_for 120 "the first step" sh -c "docker exec one hetero-train status one --json | grep -q '\"common\":[1-9]'"
process=$(docker inspect -f '{{.State.Pid}}' one)
grep -q '^NSpid:.*[[:space:]]1$' "/proc/$process/status" || fail "the program is not process 1"
docker exec one hetero-train version >/dev/null
zombies() { grep -l "^PPid:[[:space:]]$process$" /proc/[0-9]*/status 2>/dev/null | xargs -r grep -l '^State:[[:space:]]Z' || :; }
[ -z "$(zombies)" ] || fail "process 1 left zombies: $(zombies)"
docker stop -t 120 one >/dev/null
[ "$(exit_of one)" = 75 ] || fail "as process 1: docker stop: got exit code $(exit_of one), want 75"
docker start one >/dev/null
wait_for 120 "the second start" sh -c "docker exec one hetero-train status one --check 10s"
process=$(docker inspect -f '{{.State.Pid}}' one)
rank=$(pgrep -P "$process" | tail -n 1)
kill -9 "$rank"
code=$(exit_of one)
[ "$code" = 5 ] || fail "a killed rank: got exit code $code, want 5: $(docker logs --tail 5 one 2>&1)"
docker rm one >/dev/null
ok "as process 1: SIGTERM saves, a killed rank ends the run with exit code 5, and no zombie stays"

# If a supervisor in `docker exec` is killed, process 1 becomes the parent of its ranks. With --init, the ranks must end
# and leave no zombies.
gone() { ! pgrep -f -r S,R,D -- "--experiment-name $1"; } # zombie processes do not count
orphans() {
	docker run -d --name "$1" "${@:2}" -v runs:/work -v cache:/cache "$image" train --experiment-name "$1" --nproc-per-node 1 "${small[@]}" --set train.steps=2000000 >/dev/null
	wait_for 120 "the first step" docker exec "$1" hetero-train status "$1" --check 1m
	process=$(docker inspect -f '{{.State.Pid}}' "$1")
	docker exec -d "$1" hetero-train train --experiment-name "$1-guest" --nproc-per-node 2 "${small[@]}" --set train.steps=2000000
	wait_for 120 "the first step of the guest" docker exec "$1" hetero-train status "$1-guest" --check 1m
	kill -9 "$(pgrep -f -o -- "--experiment-name $1-guest")"
	wait_for 120 "the end of the guest" gone "$1-guest"
	sleep 1
	zombies | wc -l
	docker rm -f "$1" >/dev/null
}
left=$(orphans init "${safe[@]}")
[ "$left" = 0 ] || fail "with --init, $left zombies stay"
echo "figure: without --init, $(orphans bare "${bare[@]}") zombies stay"
ok "with --init, ranks that a killed supervisor leaves end without zombies"

# Common mistakes must cause clear errors.
want 2 "read-only file system" docker run --rm --read-only -v runs:/work:ro "$image" train --experiment-name never "${small[@]}" --set train.steps=1
(umask 077 && for name in token dashboard_token; do head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$place/secrets/$name"; done)
chown 65532:65532 "$place"/secrets/*
chmod 644 "$place/secrets/token"
want 2 "other users can read" docker run --rm -v "$place/secrets:/run/secrets:ro" -e HETERO_TOKEN_FILE=/run/secrets/token "$image" train --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 "${small[@]}"
chmod 400 "$place/secrets/token"
ok "a read-only folder of runs and a token that others can read are refused with exit code 2"

# The image must run as any user, as on OpenShift.
docker run --rm "${safe[@]}" --user 1000690000:0 -v other:/work -v other-cache:/cache "$image" train --nproc-per-node 1 "${small[@]}" --set train.steps=3 >/dev/null 2>&1 ||
	fail "another user cannot train"
ok "another user trains"

# The Compose file starts two workers and the dashboard.
export HETERO_IMAGE=$image HETERO_USER=65532:65532 HETERO_SECRETS=$place/secrets
cat >"$place/small.toml" <<'CONFIG'
[model]
name = "simple_cnn"
[data]
dataset = "synthetic_image"
num_samples = 64000
batch_size = 32
image_size = 8
[train]
steps = 6000
eval_interval = 0
[balance]
policy = "hybrid"
CONFIG
compose=(docker-compose --ansi never -p trial -f "$here/compose.yaml" -f "$place/override.yaml")
cat >"$place/override.yaml" <<OVERRIDE
services:
  worker-0: {volumes: ["$place/small.toml:/config.toml:ro"], healthcheck: {interval: 2s, start_period: 2s}}
  worker-1: {volumes: ["$place/small.toml:/config.toml:ro"], healthcheck: {interval: 2s, start_period: 2s}}
  dashboard: {healthcheck: {interval: 2s, start_period: 2s}}
OVERRIDE
export HETERO_CONFIG=/config.toml HETERO_EXPERIMENT=trial HETERO_HOST=board.example
start=$(now)
"${compose[@]}" up -d >"$place/compose.log" 2>&1 || fail "docker-compose up: $(tail -n 5 "$place/compose.log")"
of() { "${compose[@]}" ps -q "$1"; }
healthy() { [ "$(docker inspect -f '{{.State.Health.Status}}' "$(of "$1")")" = healthy ]; }
wait_for 120 "the first step of compose" sh -c "docker exec $(of worker-1) hetero-train status trial --json | grep -q '\"common\":[1-9]'"
echo "figure: docker-compose up to the first recorded step of two workers $(since "$start") s"
for service in worker-0 worker-1 dashboard; do wait_for 120 "health of $service" healthy $service; done
ok "two workers in two containers train with the token of a secret; all three services are healthy"
[ "$(docker inspect -f '{{.HostConfig.NanoCpus}}' "$(of worker-0)" "$(of worker-1)" | tr '\n' ' ')" = "1000000000 500000000 " ] ||
	fail "the workers do not have their limits of CPUs"
# One worker is lost: both must restart and resume. The script does not use docker kill, because Docker counts it as a
# stop by the user and does not restart the container.
first=$(docker inspect -f '{{.State.Pid}}' "$(of worker-1)")
start=$(now)
kill -9 "$first"
restarted() { [ "$(docker inspect -f '{{.State.Running}} {{gt .RestartCount 0}}' "$(of "$1")")" = "true true" ]; }
for service in worker-0 worker-1; do wait_for 180 "the restart of $service" restarted $service; done
trains() { docker exec "$(of worker-1)" hetero-train status trial --json | grep -q '"common":[1-9]' && healthy worker-0 && healthy worker-1; }
wait_for 180 "the resumed training" trains
ok "worker-1 is killed: after $(since "$start") s both workers are back and healthy, with $(docker inspect -f '{{.RestartCount}}' "$(of worker-0)" "$(of worker-1)" | tr '\n' ' ')restarts"
page=http://127.0.0.1:8501
code() { curl -s -o "$place/answer" -w '%{http_code}' "$@"; }
[ "$(code $page/api/runs)" = 401 ] || fail "the dashboard answers without a token"
[ "$(code -H 'Authorization: Bearer wrong' $page/api/runs)" = 401 ] || fail "the dashboard answers with a wrong token"
[ "$(code -H "Authorization: Bearer $(cat "$place/secrets/dashboard_token")" $page/api/runs)" = 200 ] || fail "the dashboard refuses its token"
grep -q '"name":"trial"' "$place/answer" || fail "the dashboard does not show the run: $(cat "$place/answer")"
[ "$(code $page/healthz)" = 200 ] || fail "the health check needs a token"
[ "$(code -H 'Host: board.example:8501' $page/healthz)" = 200 ] || fail "the dashboard refuses the name in HETERO_HOST"
[ "$(code -H 'Host: evil.example:8501' $page/healthz)" = 403 ] || fail "the dashboard accepts a foreign name"
ok "the dashboard answers from outside with its token only, and to its names only"
secret=$(cat "$place/secrets/token")
[[ $(docker inspect "$(of worker-0)"; "${compose[@]}" logs 2>&1; ps axww -o args) != *"$secret"* ]] || fail "the token is in the configuration, in a log or in a process list"
ok "the token is in no configuration, log or process list"
ended() { [ "$(docker inspect -f '{{.State.Status}} {{.State.ExitCode}}' "$(of "$1")")" = "exited 0" ]; }
for service in worker-0 worker-1; do wait_for 300 "the end of $service" ended $service; done
volume=$(docker volume inspect -f '{{.Mountpoint}}' trial_runs)
grep -q '"state": *"finished"' "$volume/experiments/trial/results/result.json" || fail "the run is not finished"
tail -n 1 "$volume/experiments/trial/logs/balance.jsonl" | grep -o '"shares":\[[0-9,]*\]' | head -n 1 | sed 's/^/figure: with limits of 1.0 and 0.5 CPUs, the last decision has /' || :
"${compose[@]}" down -v >/dev/null 2>&1
ok "both workers end with exit code 0"
echo "container check: $checks checks succeeded in $SECONDS s"
