// Package config reads the TOML file that describes a run.
//
// [Config] contains every setting as a typed field, with one struct per table of the file. The Keys method of each
// struct lists its keys once: field, default, unit, bounds and meaning. All users of the settings derive from these
// lists: strict loading, --set, the JSON Schema, configs/README.md, and the settings that a run stores with its
// results.
//
// # Loading
//
//	cfg, err := config.Load("configs/resnet50.toml", catalog, config.Override{Origin: "--set", Key: "train.steps", Value: "20"})
//
// The order of precedence is default < file < overrides; the last override of a key wins, and [Config.Superseded]
// lists the keys with several overrides. Load is strict and reports all faults at once, as an [*Error]. Each [Fault]
// contains the place, the full dotted key, a message, the value found and the expected value. Load creates and changes
// no files.
//
// # Models, data sets and policies
//
// This package knows no model, data set or policy. The program passes a [Catalog] that lists them. A model, data set or
// policy that has its own keys provides a struct with a Keys method ([Options]). These keys belong to the [model],
// [data] or [balance] table, and Load treats them like common keys. Their values are in [Model.Options], [Data.Options]
// or [Balance.Options]:
//
//	options := cfg.Model.Options.(*resnet.Options)
//
// # Rules
//
// A bound on a single key is part of the key. A rule over several keys is a row in rules.go.
package config
