package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
)

// sageMakerBase is the environment variable of SageMaker's toolkit that replaces the folder /opt/ml.
const sageMakerBase = "SAGEMAKER_BASE_DIR"

// SageMakerFolder returns the folder of SageMaker in a container.
func SageMakerFolder(env session.Environment) string {
	if base, _ := env.Lookup(sageMakerBase); base != "" {
		return base
	}
	return "/opt/ml"
}

// SageMakerResources returns the path of the file with the hosts of a job, which SageMaker writes into each container.
func SageMakerResources(env session.Environment) string {
	return filepath.Join(SageMakerFolder(env), "input", "config", "resourceconfig.json")
}

// sageMakerHosts returns the hosts of a SageMaker training job from the file [SageMakerResources]. It returns nothing
// if the environment already has them, as in images with SageMaker's toolkit. If the file cannot be used, fault states
// the reason, for example "is missing". A missing file is a fault only with another sign of SageMaker, because another
// program may have set TRAINING_JOB_NAME.
func sageMakerHosts(env session.Environment) (hosts discovery.Value, fault string) {
	if job, _ := env.Lookup(discovery.SageMakerJob); job == "" {
		return hosts, ""
	}
	for _, name := range discovery.SageMakerVariables {
		if _, set := env.Lookup(name); set {
			return hosts, ""
		}
	}
	hosts.From = SageMakerResources(env)
	text, err := readPublic(discovery.SageMakerJob, hosts.From)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		_, isJob := env.Lookup(discovery.SageMakerARN)
		_, missing := os.Stat(filepath.Join(SageMakerFolder(env), "input"))
		if !isJob && missing != nil {
			return discovery.Value{}, ""
		}
		return hosts, "is missing"
	case err != nil:
		if failed := new(fs.PathError); errors.As(err, &failed) {
			err = failed.Err // without the path, which the caller adds
		}
		return hosts, fmt.Sprintf("cannot be read (%v)", err)
	case len(text) == 0:
		return hosts, "is empty"
	}
	hosts.Text = string(text)
	return hosts, ""
}
