/*
Package program is the command line of hetero-train.

	hetero-train -c configs/resnet50.toml

This package is the command line, one file for each subcommand, and the only place that knows every concrete part of the
program: backends.go lists the devices, catalog.go the models and data sets. run.go is one training process from its
configuration to its result; the loop itself is engine/train. Main turns errors into the exit codes of exit.go;
everything below returns errors and never exits.
*/
package program
