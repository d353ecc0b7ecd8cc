package program

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// The folder is writable, but the disk is full.
func TestEventsThatFindNoRoomAreExitCode7(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	j := assembly.New(&config.Config{}, session.Options{})
	j.Data = &parts.Opened{}
	j.Folder = &experiment.Run{Dir: smallDisk(t, "size=64k,nr_inodes=2")}
	if err := os.Mkdir(j.Folder.LogDir(), 0o755); err != nil { // fills the disk
		t.Fatal(err)
	}
	j.Process.Cfg.Profile.TensorBoardInterval = 1
	if _, _, err := observe.Watchers(j, nil, nil); exit.Code(err) != exit.IO || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, exit code %d, want %d", err, exit.Code(err), exit.IO)
	}
}
