package schedule

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// progressEvery is the time between two progress messages.
const progressEvery = 5 * time.Second

// progress prints the number of finished runs. It prints nothing in the first progressEvery.
type progress struct {
	mutex sync.Mutex
	app   *cli.App
	done  int
	total int
	began time.Time
	next  time.Time
}

func (p *progress) start(a *cli.App, total int) {
	p.app, p.total, p.began = a, total, time.Now()
	p.next = p.began.Add(progressEvery)
}

func (p *progress) add() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.done++
	now := time.Now()
	if now.Before(p.next) || p.done == p.total {
		return
	}
	p.next = now.Add(progressEvery)
	spent := now.Sub(p.began)
	left := time.Duration(float64(spent) / float64(p.done) * float64(p.total-p.done))
	p.app.Progress(fmt.Sprintf("%d of %d runs | %s left", p.done, p.total, show.Duration(left)))
}

// checkOutput refuses a path that writeFile could not replace, and a file without write permission. It follows symbolic
// links.
func checkOutput(command, flag, path string) (string, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if err := experiment.Replaceable(path); err != nil {
		return "", exit.Usagef("%s: %s: %w", command, flag, err)
	}
	if folder, err := os.Stat(filepath.Dir(path)); err != nil {
		return "", exit.With(exit.IO, fmt.Errorf("%s: %s: folder of the file: %w", command, flag, err))
	} else if !folder.IsDir() {
		return "", exit.With(exit.IO, fmt.Errorf("%s: %s: folder of the file: got %s, which is no folder", command,
			flag, filepath.Dir(path)))
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", exit.Usagef("%s: %s: %w", command, flag, err)
	}
	if err == nil {
		file.Close()
	}
	return path, nil
}

// writeFile creates or replaces a file that a flag names.
func writeFile(path string, write func(io.Writer) error) error {
	return exit.With(exit.IO, experiment.Replace(path, write))
}
