/*
Package program is the root of hetero-train's command line.

	hetero-train -c configs/resnet50.toml

The package contains the root command, the global flags, help and completion. Main turns errors into the exit codes of
package exit. Each family of commands is a package under cmd/hetero-train/internal/command. Package internal/run
executes a training process.

A program that adds models, data sets or policies passes them to [Main].
*/
package program
