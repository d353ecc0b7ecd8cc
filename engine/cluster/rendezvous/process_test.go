//go:build unix

package rendezvous_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/ranktest"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
)

// rankVariable makes this test binary a rank.
const rankVariable = "RENDEZVOUS_TEST_RANK"

const worldSize = 3

type role struct {
	Rank    int
	Meeting string
	Token   rendezvous.Token
}

func TestMain(m *testing.M) { ranktest.Main(m, rankVariable, role.run) }

// testHeartbeat is much longer than a rank waits for a CPU on a busy machine.
const testHeartbeat = 8 * time.Second

// run joins the group and prints the result.
func (r role) run() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for range asked {
			reportUsage()
		}
	}()
	group, err := ranktest.Join(context.Background(),
		rendezvous.Options{Rank: r.Rank, WorldSize: worldSize, Address: r.Meeting, Token: r.Token,
			HeartbeatTimeout: testHeartbeat, Timeout: time.Minute})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("joined as local rank", group.Members()[r.Rank].LocalRank)
	<-group.Broken()
	fmt.Println(group.Err())
	group.Close()
}

func TestSurvivorsLearnWhichProcessIsGone(t *testing.T) {
	tests := []struct {
		name   string
		rank   int
		signal syscall.Signal
		cause  string
	}{
		{"rank 2 is killed", 2, syscall.SIGKILL, "(the process ended or was killed)"},
		{"rank 0 is killed", 0, syscall.SIGKILL, "(the process ended or was killed)"},
		{"rank 1 is stopped", 1, syscall.SIGSTOP, "no message for "},
		{"rank 0 is stopped", 0, syscall.SIGSTOP, "no message for "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ranks := ranktest.Start(t, rankVariable, worldSize, func(rank int, meeting string) any {
				return role{Rank: rank, Meeting: meeting}
			})
			for rank := range worldSize {
				ranks.Expect(rank, fmt.Sprint("joined as local rank ", rank))
			}
			began := time.Now()
			ranks.Signal(test.rank, test.signal)
			for rank := range worldSize {
				if rank == test.rank {
					continue
				}
				if line := ranks.Expect(rank, fmt.Sprintf("rank %d is lost: ", test.rank)); !strings.Contains(line,
					test.cause) {
					t.Errorf("rank %d said %q, want %q", rank, line, test.cause)
				}
			}
			t.Logf("known everywhere after %v", time.Since(began))
			if test.signal == syscall.SIGSTOP { // it continues, and notices that the group has excluded it
				ranks.Signal(test.rank, syscall.SIGCONT)
				if line := ranks.Expect(test.rank, ""); !strings.Contains(line, "is lost: ") {
					t.Errorf("the stopped rank said %q", line)
				}
			}
		})
	}
}
