package process

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
)

// sageMakerBase replaces the folder of SageMaker. It is a variable of SageMaker's own toolkit.
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

// sageMakerHosts reads the hosts of a training job of SageMaker. Only images with SageMaker's toolkit have them in
// their environment; all containers have them in a file.
func sageMakerHosts(env session.Environment) (discovery.Value, error) {
	if job, _ := env.Lookup(discovery.SageMakerJob); job == "" {
		return discovery.Value{}, nil
	}
	for _, name := range discovery.SageMakerVariables {
		if _, set := env.Lookup(name); set {
			return discovery.Value{}, nil
		}
	}
	hosts := discovery.Value{From: SageMakerResources(env)}
	text, err := readPublic(discovery.SageMakerJob, hosts.From)
	if errors.Is(err, fs.ErrNotExist) {
		return hosts, nil // a fault only if no other launcher started this process
	}
	if err == nil && len(text) == 0 {
		err = exit.Usagef("%s: the file %s is empty", discovery.SageMakerJob, hosts.From)
	}
	hosts.Text = string(text)
	return hosts, err
}
