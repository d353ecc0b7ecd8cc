package certs

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

const certsLong = `Make certificates for the machines of a run: an authority, and a certificate and private key for each machine.

FOLDER/ca.pem and FOLDER/ca-key.pem are the authority; if they exist, the command uses them and makes only the files of the machines.
Each MACHINE is a host name or an address, followed by its other names and addresses after commas. The first name is the name of the files:
FOLDER/NAME.pem and FOLDER/NAME-key.pem. The machine of rank 0 needs the name that parallel.master_addr has.

Copy ca.pem, NAME.pem and NAME-key.pem to each machine, and set parallel.ca_file, parallel.cert_file and parallel.key_file there.
No machine needs ca-key.pem: keep it where you make certificates. All files with keys have mode 0600.

The certificates complement the secret of the run (HETERO_TOKEN); they do not replace it.`

const certsExample = `  hetero-train certs certificates node-a,10.0.0.1 node-b,10.0.0.2
  hetero-train certs certificates node-c --days 30`

// flags are the flags of command certs.
type flags struct {
	days, authorityDays int
	authorityGiven      bool // --ca-days was given
}

// mostDays is the longest accepted validity of a certificate in days.
const mostDays = 36500

// New returns the command.
func New(a *cli.App) *cobra.Command {
	f := new(flags)
	cmd := &cobra.Command{Use: "certs FOLDER MACHINE...", Short: "Make certificates for the machines of a run",
		Long: certsLong, Example: certsExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exit.Usagef("%s: got %d arguments %q, want a folder and at least one machine", cmd.CommandPath(),
					len(args), args)
			}
			return nil
		}}
	cmd.Flags().IntVar(&f.days, "days", 365, "life of the certificates of machines, in days")
	cmd.Flags().IntVar(&f.authorityDays, "ca-days", 3650, "life of a new authority, in days")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.authorityGiven = cmd.Flags().Changed("ca-days")
		for name, days := range map[string]int{"--days": f.days, "--ca-days": f.authorityDays} {
			if days < 1 || days > mostDays {
				return exit.Usagef("%s: got %d, want 1 to %d", name, days, mostDays)
			}
		}
		return exit.Classify(cmd.Context(), run(a, f, args[0], args[1:], time.Now()))
	}
	return cmd
}

// run creates the files that do not exist yet.
func run(a *cli.App, f *flags, folder string, arguments []string, now time.Time) error {
	machines := map[string]machine{}
	owners := map[string]string{} // name of the machine to which each file belongs
	for _, path := range paths(folder, authorityName) {
		owners[path] = "the authority"
	}
	for _, text := range arguments {
		m, err := parseMachine(text)
		if err != nil {
			return err
		}
		if _, twice := machines[m.name]; twice {
			return exit.Usagef("certs: %q is given twice", m.name)
		}
		machines[m.name] = m
		for _, path := range paths(folder, m.name) {
			if owner := owners[path]; owner != "" {
				return exit.Usagef("certs: the file %s belongs to %s and to %q: put another name of the machine first",
					path, owner, m.name)
			}
			owners[path] = strconv.Quote(m.name)
			if _, err := os.Lstat(path); err == nil {
				return exit.Usagef("certs: %s exists: remove the files of %s, or choose another folder", path, m.name)
			}
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return exit.With(exit.IO, fmt.Errorf("certs: %w", err))
	}
	authority, made, err := openAuthority(folder, f.authorityDays, now)
	if err != nil {
		return err
	}
	out := a.Env.Stdout
	if made {
		fmt.Fprintf(out, "made the authority %s, valid until %s; keep %s secret\n", paths(folder, authorityName)[0],
			authority.certificate.NotAfter.Format(time.DateOnly), paths(folder, authorityName)[1])
	}
	key := paths(folder, authorityName)[1]
	// Do not warn of access by the group, which may be deliberate. Do warn of a file system without modes, which cannot
	// protect the key.
	if info, err := os.Stat(key); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o007 != 0 {
		a.Warn(fmt.Errorf("other users can read the key of the authority %s (mode %04o), and make certificates: run chmod 600, or move the folder to a file system with modes",
			key, info.Mode().Perm()))
	}
	if !made && f.authorityGiven {
		a.Warn(fmt.Errorf("--ca-days has no effect: the authority %s exists, and is valid until %s",
			paths(folder, authorityName)[0], authority.certificate.NotAfter.Format(time.DateOnly)))
	}
	limit := authority.certificate.NotAfter // certificates store times in whole seconds
	if asked := now.AddDate(0, 0, f.days).In(limit.Location()).Truncate(time.Second); asked.After(limit) {
		a.Warn(fmt.Errorf("the certificates are valid until %s instead of %s (--days %d), because the authority expires then",
			limit.Format(time.DateOnly), asked.Format(time.DateOnly), f.days))
	}
	for _, text := range arguments {
		name, _, _ := strings.Cut(text, ",")
		until, err := authority.issue(folder, machines[name], f.days, now)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "made %s for %s, valid until %s\n", paths(folder, name)[0], text, until.Format(time.DateOnly))
	}
	_, err = fmt.Fprintf(out, "on each machine: --set parallel.ca_file=%s --set parallel.cert_file=%s --set parallel.key_file=%s\n",
		filepath.Join(folder, authorityName+".pem"), filepath.Join(folder, "NAME.pem"),
		filepath.Join(folder, "NAME-key.pem"))
	return err
}
