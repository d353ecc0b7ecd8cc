package exit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/content"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/ports"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/engine/weights"
	"github.com/hetero-train/hetero-train/nccl"
)

// stopOfAnother returns the signal that ended another rank, if err is the report of that rank.
func stopOfAnother(err error) (Stopped, bool) {
	var lost *rendezvous.LostError
	if !errors.As(err, &lost) {
		return Stopped{}, false
	}
	for _, s := range []Stopped{{syscall.SIGTERM}, {syscall.SIGINT}, {syscall.SIGHUP}} {
		if strings.HasPrefix(lost.Cause, s.Error()) {
			return s, true
		}
	}
	return Stopped{}, false
}

// Classify attaches an exit code to err, according to its kind.
func Classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var coded *coded
	if errors.As(err, &coded) {
		return err
	}
	var s Stopped
	// A run that a signal has canceled before its first step has no state to save.
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &s) {
		return With(s.Saved(), s)
	}
	err = firstCause(err)
	is := func(target any) bool { return errors.As(err, target) }
	if s, ok := stopOfAnother(err); ok { // only before the first step; later, all ranks stop together
		return With(s.Saved(), fmt.Errorf("%w, because another rank received a signal to stop: %w", s, err))
	}
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, rendezvous.ErrLoopbackDown):
		return With(Usage, err)
	case errors.Is(err, context.DeadlineExceeded): // only the rendezvous has a deadline
		return With(Communication, fmt.Errorf("%w (parallel.rendezvous_timeout_seconds)", err))
	case errors.Is(err, train.ErrDiverged):
		return With(Diverged, err)
	case errors.Is(err, train.ErrFinalSave):
		if errors.As(context.Cause(ctx), &s) {
			return With(s.Unsaved(), err)
		}
		return With(IO, err)
	case is(new(*data.Fault)), is(new(*checkpoint.CorruptError)), is(new(*checkpoint.FormatError)):
		return With(Data, err)
	case is(new(*config.Error)), is(new(*graph.BuildError)), is(new(*checkpoint.MismatchError)),
		is(new(*weights.RenameError)), is(new(*experiment.NameError)), is(new(*experiment.ResumeError)),
		is(new(*experiment.ChangedError)):
		return With(Usage, err)
	case IsFolderInUse(err):
		// The code is not Usage, after which schedulers do not restart a run. A later start may succeed, because a
		// network file system keeps the lock of a dead machine for minutes.
		return With(IO, err)
	case is(new(*checkpoint.IOError)), is(new(*experiment.FolderError)):
		return With(FolderCode(err), err)
	case refusedData(err): // data that another rank refused
		return With(Data, err)
	case is(new(*content.DifferenceError)), is(new(*gradsync.DifferenceError)), is(new(*rendezvous.DisagreeError)),
		is(new(*rendezvous.DuplicateError)), is(new(*rendezvous.ListenError)), errors.Is(err, rendezvous.ErrToken),
		errors.Is(err, rendezvous.ErrVersion), is(new(*handshake.CertificateError)), is(new(*ports.FullError)),
		errors.Is(err, shm.ErrUnavailable):
		return With(Usage, err)
	case is(new(*collective.PeerError)), is(new(*collective.TimeoutError)), is(new(*collective.MismatchError)),
		is(new(*nccl.Error)), is(new(*gradsync.ReplicaError)),
		is(new(*rendezvous.LostError)), is(new(*rendezvous.MissingError)), is(new(*rendezvous.UnreachableError)),
		errors.Is(err, collective.ErrAborted), errors.Is(err, collective.ErrDamaged),
		errors.Is(err, handshake.ErrIntercepted):
		return With(Communication, err)
	case is(new(*replica.MemoryError)) && nothingFits(err):
		return With(Device, err) // not Usage: a smaller batch would not help
	case is(new(*replica.MemoryError)):
		return With(Device, fmt.Errorf("%w; lower data.batch_size, or raise train.grad_accumulation, which divides the batch (0: the program chooses the number)",
			err))
	case errors.Is(err, device.ErrDevice), errors.Is(err, device.ErrOutOfMemory):
		return With(Device, err)
	}
	return With(Unexpected, err)
}

// refusedData reports whether err states that another rank found damaged data before it joined.
func refusedData(err error) bool {
	var e *rendezvous.DisagreeError
	return errors.As(err, &e) && e.Refusal() == rendezvous.RefusedData
}

// nothingFits reports whether err states that the model alone, or a single sample, does not fit into memory.
func nothingFits(err error) bool {
	var e *replica.MemoryError
	return errors.As(err, &e) && (e.Model || e.Account != nil && e.Fit == 0 && !e.Together)
}
