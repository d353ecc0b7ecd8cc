package schedule

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue/kubernetes"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue/slurm"
)

// cluster is a client of the queue system of a real cluster.
type cluster interface {
	Read(ctx context.Context, now float64) (*jobqueue.Snapshot, error)
	// Cluster returns the identity of the cluster. With it, one log can contain the changes of several clusters.
	Cluster(ctx context.Context) (string, error)
	// Change describes what Apply will do with a placement.
	Change(p jobqueue.Placement) jobqueue.Change
	Apply(ctx context.Context, p jobqueue.Placement) error
	// Undo reverts a change. Without apply, it only reports what it would do.
	Undo(ctx context.Context, ch jobqueue.Change, apply bool) (jobqueue.Reversal, error)
}

// clusterOf returns the client of a queue system, and the name of this system in the log of changes.
func clusterOf(kube bool, context, namespace string) (system string, c cluster) {
	if kube {
		return "kubernetes", &kubernetes.Client{Context: context, Namespace: namespace}
	}
	return "slurm", &slurm.Client{}
}

// unanswered returns the error of a command whose request to the queue system failed. It is the cause of ctx if ctx has
// ended, otherwise err with an exit code.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return exit.With(exit.Communication, err)
}

// interrupted returns the cause of the end of ctx. It adds the earlier faults only as text, because their exit codes
// must not replace the exit code of the cause.
func interrupted(ctx context.Context, faults []error) error {
	if len(faults) == 0 {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w; before this: %v", context.Cause(ctx), errors.Join(faults...))
}
