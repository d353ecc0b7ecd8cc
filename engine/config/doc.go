// Package config reads the TOML file that describes a run.
//
// [Config] contains every setting as a typed field, with one struct per table of the file. The Keys method of each
// struct is the only list of its keys: field, default, unit, bounds and meaning. All uses of the settings depend on
// these lists: strict loading, --set, the JSON Schema, configs/README.md, and the settings that a run stores with its
// results.
//
// # Loading
//
//	cfg, err := config.Load("configs/resnet50.toml", catalog, config.Override{Origin: "--set", Key: "train.steps", Value: "20"})
//
// The order of precedence is default < file < overrides. If a key has several overrides, the last one applies, and
// [Config.Superseded] lists the key. Load is strict and reports all faults together, as an [*Error]. Each [Fault]
// contains the place, the full dotted key, a message, the value found and the expected value. Load creates and changes
// no files.
//
// # Models, data sets and policies
//
// This package contains no list of models, data sets or policies. The program passes a [Catalog] that lists them. If a
// model, data set or policy has its own keys, it provides a struct with a Keys method ([Options]). These keys belong to
// table [model], [data] or [balance], and Load treats them like common keys. Their values are in [Model.Options],
// [Data.Options] or [Balance.Options]:
//
//	options := cfg.Model.Options.(*resnet.Options)
//
// # Rules
//
// A bound on a single key is part of the key. A rule over several keys is a row in rules.go.
package config
