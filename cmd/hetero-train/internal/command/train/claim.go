package train

import (
	"fmt"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// If the user did not name the run, and another unnamed run trains in the same folder, claimName gives the run a
// different name. It adds this name to the command line, so that the ranks and the command that resumes the run use it.
// It does not rename a run if other processes start its ranks, because all ranks must use the same name. The returned
// function release releases the name.
func claimName(a *cli.App, cfg *config.Config, assigned discovery.Assignment) (_ *config.Config, warnings []string,
	release func(), err error) {
	alone := assigned.WorldSize == 1 || assigned.Launch && assigned.LocalWorldSize == assigned.WorldSize
	if _, supervised := a.Env.Lookup(session.SupervisedVariable); supervised || !alone || a.Comparison != nil ||
		cfg.Origin(session.NameKey) != "" {
		return cfg, nil, func() {}, nil
	}
	usual := cfg.Experiment.Name
	name, release, err := experiment.ClaimName(cfg.Experiment.OutputDir, usual)
	if err != nil {
		return cfg, nil, release, exit.With(exit.FolderCode(err), err)
	}
	if name == usual {
		return cfg, nil, release, nil
	}
	setting := session.NameKey + "=" + name
	a.Args = append(a.Args, "--set", setting)
	a.Overrides = append(a.Overrides, config.Override{Origin: "--set", Key: session.NameKey, Value: name})
	cfg, err = a.Read()
	return cfg,
		[]string{
			fmt.Sprintf("another run without a name trains in %s, so this run is named %s; this command resumes it with --set %s",
				filepath.Join(cfg.Experiment.OutputDir, usual), name, setting)}, release, err
}
