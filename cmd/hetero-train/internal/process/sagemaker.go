package process

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
)

const (
	// sageMakerJob is a variable that SageMaker sets in each container of a training job.
	sageMakerJob = "TRAINING_JOB_NAME"
	// sageMakerBase replaces the folder of SageMaker. It is a variable of SageMaker's own toolkit.
	sageMakerBase = "SAGEMAKER_BASE_DIR"
)

// SageMakerFolder returns the folder of SageMaker in a container.
func SageMakerFolder(env session.Environment) string {
	if base, _ := env.Lookup(sageMakerBase); base != "" {
		return base
	}
	return "/opt/ml"
}

// withSageMaker returns environ with the hosts of a training job of SageMaker. Only images with SageMaker's toolkit
// have them in their environment; all containers have them in a file.
func withSageMaker(environ []string) ([]string, error) {
	env := session.Environment{Environ: environ}
	if job, _ := env.Lookup(sageMakerJob); job == "" {
		return environ, nil
	}
	for _, name := range []string{"SM_HOSTS", "SM_CURRENT_HOST", discovery.ResourceConfigVariable} {
		if _, set := env.Lookup(name); set {
			return environ, nil
		}
	}
	text, err := readPublic(sageMakerJob, filepath.Join(SageMakerFolder(env), "input", "config", "resourceconfig.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return environ, nil // the variable is that of another program
	}
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return append(environ[:len(environ):len(environ)], discovery.ResourceConfigVariable+"="+string(text)), nil
}
