package program

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
)

// Each user of the machine can connect to the port of rank 0. Other users do not know the token of the supervisor, so
// they must be able to read nothing and change nothing.
func TestOtherUsersCannotJoin(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	cmd := p.command(dir, "parallel.ranks=2", "train.steps=1000000", "train.log_interval=1")
	cmd.Args = append(cmd.Args, "--log-level", "info")
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "HETERO_TOKEN=") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	w := watch(t, cmd)
	w.await(t, "step 2/")
	w.mu.Lock()
	at := regexp.MustCompile(`meeting_at="?([0-9.:]+)`).FindStringSubmatch(w.text.String())
	w.mu.Unlock()
	if at == nil {
		t.Fatalf("no address of rank 0 in\n%s", w.text.String())
	}
	_, err := rendezvous.Join(context.Background(),
		rendezvous.Options{Rank: 1, WorldSize: 2, LocalRank: -1, Address: at[1], Timeout: time.Minute})
	if !errors.Is(err, rendezvous.ErrToken) {
		t.Errorf("got %v, want ErrToken", err)
	}
	w.cmd.Process.Signal(syscall.SIGTERM)
	w.end(t, exit.Terminated, "saved")
}
