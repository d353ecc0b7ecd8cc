package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
)

// mostFailureBytes is the maximum length of the failure text that SageMaker shows.
const mostFailureBytes = 1024

// startSageMaker does the same as Start in a container of SageMaker.
func startSageMaker(ctx context.Context, a *cli.App, flags *trainFlags) error {
	if err := inSageMaker(a.Env); err != nil {
		return err
	}
	base := process.SageMakerFolder(a.Env)
	err := func() error {
		overrides, err := sageMakerOverrides(base)
		if err != nil {
			return err
		}
		if err := sageMakerToken(a, base); err != nil {
			return err
		}
		a.Overrides = append(overrides, a.Overrides...) // last, so that the command line has priority
		return Start(ctx, a, flags)
	}()
	if _, supervised := a.Env.Lookup(session.SupervisedVariable); err == nil || supervised {
		return err
	}
	switch exit.Code(err) {
	case exit.Terminated, exit.Interrupted: // SageMaker itself stops the job: this is no failure
		return err
	}
	text := a.Hide.Text(err.Error())
	if len(text) > mostFailureBytes {
		text = strings.ToValidUTF8(text[:mostFailureBytes], "")
	}
	if failed := os.WriteFile(filepath.Join(base, "output", "failure"), []byte(text+"\n"), 0o644); failed != nil {
		a.Warn(fmt.Errorf("the reason of the failure is not in SageMaker: %w", failed))
	}
	return err
}

// inSageMaker returns an error outside a container of a SageMaker training job. There, the runs would be in folders
// that SageMaker does not keep.
func inSageMaker(env session.Environment) error {
	file := process.SageMakerResources(env)
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no file")
	}
	if failed := new(fs.PathError); errors.As(err, &failed) {
		err = failed.Err // without the path, which the message below contains
	}
	if err != nil {
		return exit.Usagef("--%s: want the file %s, which each container of a training job of SageMaker has: %w; without the flag, the program trains anywhere",
			sageMakerFlag, file, err)
	}
	return nil
}

// sageMakerToken reads the secret of the run from the channel "token", unless the environment has one. Other users can
// read the files of a channel, but the container has no other users.
func sageMakerToken(a *cli.App, base string) error {
	for _, name := range []string{process.TokenVariable, process.TokenFileVariable} {
		if text, _ := a.Env.Lookup(name); text != "" {
			return nil
		}
	}
	files, err := filepath.Glob(filepath.Join(base, "input", "data", "token", "*"))
	if err != nil || len(files) == 0 {
		return nil // there is no such channel; the pattern itself is valid
	}
	if len(files) > 1 {
		return exit.Usagef("--%s: the channel \"token\" has %d files, want one, with the token of the run",
			sageMakerFlag, len(files))
	}
	text, err := os.ReadFile(files[0])
	if err == nil && strings.TrimSpace(string(text)) == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return exit.Usagef("--%s: the channel \"token\": %w", sageMakerFlag, err)
	}
	a.Env.Environ = append(slices.Clone(a.Env.Environ), process.TokenVariable+"="+strings.TrimSpace(string(text)))
	a.Hide = logs.SecretsIn(a.Env.Environ)
	return nil
}

// sageMakerOverrides returns the settings from the files of SageMaker. They are the hyperparameters, and the folder of
// runs, because SageMaker keeps the files in this folder.
func sageMakerOverrides(base string) ([]config.Override, error) {
	runs := filepath.Join(base, "checkpoints") // exists if the job has a storage location for checkpoints
	if info, err := os.Stat(runs); err != nil || !info.IsDir() {
		runs = filepath.Join(base, "output", "data")
	}
	text, err := json.Marshal(runs) // a JSON string is also a TOML string
	if err != nil {
		return nil, err
	}
	overrides := []config.Override{{Origin: "--" + sageMakerFlag, Key: "experiment.output_dir", Value: string(text),
		Default: true}}
	path := filepath.Join(base, "input", "config", "hyperparameters.json")
	file, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return overrides, nil
	}
	var parameters map[string]string
	if err == nil {
		err = json.Unmarshal(file, &parameters)
	}
	if err != nil {
		return nil, exit.Usagef("--%s: %s: %w, want an object whose values are texts", sageMakerFlag, path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		switch {
		case strings.Contains(name, "."):
			overrides = append(overrides, config.Override{Origin: "hyperparameter " + name, Key: name,
				Value: parameters[name]})
		case strings.HasPrefix(name, "sagemaker_"), strings.HasPrefix(name, "_tuning_"): // for SageMaker itself
		default:
			return nil, exit.Usagef("--%s: %s: got the hyperparameter %q, want the name of a key, such as optimizer.lr",
				sageMakerFlag, path, name)
		}
	}
	return overrides, nil
}
