//go:build unix

package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// twoHosts connects two network namespaces by a cable, and runs the program in each of them as one of two ranks. It
// then runs $1, for example to cut the cable. The script's own namespaces contain all of this, and end with the script.
const twoHosts = `
set -e
mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip netns add a
ip netns add b
ip link add va netns a type veth peer name vb netns b
ip -n a addr add 10.77.0.1/24 dev va
ip -n b addr add 10.77.0.2/24 dev vb
for host in a b; do ip -n $host link set lo up; ip -n $host link set v$host up; done
echo cable
run() { ip netns exec $1 env RANK=$2 WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29511 HETERO_TOKEN="$3" "$0" 2>&1 | sed -u "s/^/$1: /" | tee /run/netns/out.$1 & }
run a 0 "$2"
run b 1 "$3"
eval "$1"
wait
`

// onTwoHosts runs the script. It skips the test if this process cannot create namespaces.
func onTwoHosts(t *testing.T, action string, steps, timeout int, tokens [2]rendezvous.Token) string {
	t.Helper()
	command := exec.Command("unshare", "--net", "--mount", "sh", "-c", twoHosts, os.Args[0], action, string(tokens[0]),
		string(tokens[1]))
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", programVariable, steps),
		fmt.Sprintf("%s=%d", timeoutVariable, timeout))
	out, err := command.CombinedOutput()
	if !strings.Contains(string(out), "cable\n") {
		needtest.Programs(t, "tools", "unshare")
		needtest.Programs(t, "iproute2", "ip")
		needtest.Missing(t, "namespaces", fmt.Sprintf("network namespaces: %v: %s", err, out))
	}
	return string(out)
}

// untilTheyMet waits for at most a minute, until both ranks print that they have joined.
const untilTheyMet = "for i in $(seq 600); do grep -q process /run/netns/out.a && grep -q process /run/netns/out.b && break; sleep 0.1; done; "

func TestRanksOnTwoHosts(t *testing.T) {
	t.Parallel()
	token, other := rendezvous.Token(strings.Repeat("a", 64)), rendezvous.Token(strings.Repeat("b", 64))
	tests := []struct {
		name    string
		action  string
		steps   int
		timeout int // seconds that a rank waits for the other ranks to join
		tokens  [2]rendezvous.Token
		wants   []string
	}{
		{"they meet", "true", 10, 60, [2]rendezvous.Token{token, token},
			[]string{"a: rank 0 of 2, decided by environment, rank 0 at 10.77.0.1:29511 (MASTER_ADDR); process",
				"b: rank 1 of 2, decided by environment"}},
		{"no rank listens to the network without a token", "true", 10, 2, [2]rendezvous.Token{"", ""},
			[]string{"a: rank 0 cannot listen on 10.77.0.1:29511: other machines can reach this address: set a token"}},
		{"a rank with another token", "true", 10, 6, [2]rendezvous.Token{token, other},
			[]string{"b: join rank 0 at 10.77.0.1:29511: the token of this rank differs from the token of rank 0",
				"a: rendezvous at 10.77.0.1:29511: waited ", " for 2 ranks, missing: rank 1"}},
		{"the cable is cut", untilTheyMet + "ip -n b link set vb down", 1e6, 60, [2]rendezvous.Token{token, token},
			[]string{"a: rank 1 is lost: no message for ", "b: rank 0 is lost: no message for "}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out := onTwoHosts(t, test.action, test.steps, test.timeout, test.tokens)
			for _, want := range test.wants {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in\n%s", want, out)
				}
			}
		})
	}
}
