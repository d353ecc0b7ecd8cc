// Package programs runs the client programs of a queue system.
package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Limits of one program.
const (
	patience   = 60 * time.Second
	mostOutput = 256 << 20 // bytes of output; 100,000 jobs need about 200 MB
)

// ErrNoAnswer is wrapped by the error of a program that got no answer from the queue system. The queue system may
// nevertheless have executed the request.
var ErrNoAnswer = errors.New("no answer")

// Run returns the standard output of a program in the search path. The error of a failed program contains the last line
// of its standard error. Run fails after 60 s, or if the program writes more than 256 MiB.
func Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(limit, name, args...)
	cmd.WaitDelay = time.Second // do not wait for a child that keeps the pipe open
	out, messages := limited{most: mostOutput}, limited{most: 64 << 10}
	cmd.Stdout, cmd.Stderr = &out, &messages
	call := name + " " + strings.Join(args, " ")
	if err := cmd.Run(); err != nil {
		switch {
		case errors.Is(err, exec.ErrNotFound):
			return nil,
				fmt.Errorf("%s: the program is not in PATH; run this command on a machine with the client programs of the cluster",
					name)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case limit.Err() != nil:
			return nil, fmt.Errorf("%s: %w within %v", call, ErrNoAnswer, patience)
		}
		if text := strings.TrimSpace(messages.String()); text != "" {
			err = errors.New(text[strings.LastIndexByte(text, '\n')+1:])
			if strings.Contains(strings.ToLower(text), "timed out") || strings.Contains(strings.ToLower(text), "timeout") {
				err = fmt.Errorf("%w: %w", ErrNoAnswer, err)
			}
		}
		return nil, fmt.Errorf("%s: %w", call, err)
	}
	if out.cut {
		return nil, fmt.Errorf("%s: got more than %d MiB of output, want at most this size", call, mostOutput>>20)
	}
	return out.Bytes(), nil
}

// limited is a writer that keeps the first bytes of a program's output.
type limited struct {
	bytes.Buffer
	most int
	cut  bool
}

func (l *limited) Write(p []byte) (int, error) {
	if keep := min(len(p), l.most-l.Len()); keep < len(p) {
		l.cut = true
		l.Buffer.Write(p[:keep])
		return len(p), nil // drop the rest, because a closed pipe would change the error of the program
	}
	return l.Buffer.Write(p)
}
