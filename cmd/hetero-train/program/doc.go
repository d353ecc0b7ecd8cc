/*
Package program is the root of hetero-train's command line.

	hetero-train -c configs/resnet50.toml

It has the root command, global flags, help, completion and the end of the process: Main turns errors into the exit codes of
package exit. Each family of commands is a package under cmd/hetero-train/internal/command; a run is package internal/run.

A program with models, data sets or policies of its own passes them to [Main].
*/
package program
