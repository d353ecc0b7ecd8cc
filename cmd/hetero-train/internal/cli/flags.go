package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/engine/config"
)

// LauncherFlags are the flags that determine the ranks of the run and the ranks that this process starts.
type LauncherFlags struct {
	Nodes, NodeRank string // values of --nnodes and --node-rank
}

// AddLauncherFlags adds the flags of f to a command that runs on all ranks.
func AddLauncherFlags(f *LauncherFlags, cmd *cobra.Command, a *App) {
	a.AddKeyFlag(cmd, "nproc-per-node", "parallel.ranks", "int", "number of ranks on this machine")
	a.AddKeyFlag(cmd, "master-addr", "parallel.master_addr", "string", "host of rank 0")
	a.AddKeyFlag(cmd, "master-port", "parallel.master_port", "int", "TCP port of rank 0")
	a.AddSwitch(cmd, "insecure", "parallel.insecure", "accept ranks of other machines without a token")
	cmd.Flags().StringVar(&f.Nodes, "nnodes", "", "number of `machines` in the run; each machine starts its own ranks")
	cmd.Flags().StringVar(&f.NodeRank, "node-rank", "", "`number` of this machine, 0 to --nnodes minus 1")
}

// FileFlag is the value of flag -c. It keeps all values, so that the program can refuse a second file.
type FileFlag struct{ App *App }

func (f *FileFlag) String() string { return f.App.File }

func (f *FileFlag) Type() string { return "string" }

func (f *FileFlag) Set(file string) error {
	f.App.File, f.App.Files = file, append(f.App.Files, file)
	return nil
}

// SetFlag is the value of --set. Each use of the flag adds an override.
type SetFlag struct{ App *App }

func (f *SetFlag) String() string { return "" }

func (f *SetFlag) Type() string { return "table.key=value" }

func (f *SetFlag) Set(text string) error {
	o, err := config.ParseSet(text)
	if err == nil {
		f.App.Overrides = append(f.App.Overrides, o)
	}
	return err
}

// KeyFlag is the value of a flag that sets one key. The configuration checks this value.
type KeyFlag struct {
	App  *App
	Flag string // name of the flag, without dashes
	Key  string // full dotted key
	Kind string // type that --help shows
}

// AddKeyFlag adds to cmd a flag that sets a key. The help shows kind as the type of the flag, and usage followed by the
// name of the key.
func (a *App) AddKeyFlag(cmd *cobra.Command, flag, key, kind, usage string) {
	cmd.Flags().Var(&KeyFlag{App: a, Flag: flag, Key: key, Kind: kind}, flag, fmt.Sprintf("%s (%s)", usage, key))
}

// AddSwitch adds to cmd a flag that sets a key to true, or with the value =false to false.
func (a *App) AddSwitch(cmd *cobra.Command, flag, key, usage string) {
	cmd.Flags().BoolFunc(flag, fmt.Sprintf("%s (%s)", usage, key), func(text string) error {
		on, err := strconv.ParseBool(text)
		a.Overrides = append(a.Overrides, config.Override{Origin: "--" + flag, Key: key, Value: strconv.FormatBool(on)})
		return err
	})
}

func (f *KeyFlag) String() string { return "" }

func (f *KeyFlag) Type() string { return f.Kind }

func (f *KeyFlag) Set(text string) error {
	f.App.Overrides = append(f.App.Overrides, config.Override{Origin: "--" + f.Flag, Key: f.Key, Value: text})
	return nil
}
