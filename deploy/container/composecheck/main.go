// Command composecheck loads Compose files with the library of `docker compose`, and prints the loaded configuration.
// It is a separate module, so that hetero-train does not depend on this library.
//
//	go run . FILE...
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if err := check(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "composecheck:", err)
		os.Exit(1)
	}
}

// check loads the files with the schema of the specification, which refuses unknown keys and wrong types, and with all
// checks of consistency.
func check(files []string) error {
	options, err := cli.NewProjectOptions(files, cli.WithOsEnv, cli.WithConsistency(true), cli.WithInterpolation(true))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	text, err := project.MarshalYAML()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}
