// Package config reads the TOML file that describes a run.
//
// [Config] holds every setting as a typed field, one struct for each table of the file. Each struct
// lists its keys once, in its Keys method: where the value goes, its default, unit, bounds and meaning.
// Everything else is derived from those lists: strict loading, --set, the JSON Schema, configs/README.md
// and the file that a run stores beside its results.
//
// # Loading
//
//	cfg, err := config.Load("configs/resnet50.toml", catalog, config.Override{Origin: "--set", Key: "train.steps", Value: "20"})
//
// The order of precedence is default < file < overrides, the last override of a key wins. Load is strict
// and reports every fault at once: the error is a [*Error] whose [Fault]s each name the place, the full
// dotted key, what is wrong, what was found and what would be right. Nothing is created or changed.
//
// # Models, data sets and policies
//
// This package knows no model, no data set and no policy. The program passes a [Catalog] that lists them; one that has
// keys of its own offers a struct with a Keys method ([Options]). Those keys are part of the [model], [data] or
// [balance] table, are loaded as strictly as the common ones, and are found in [Model.Options], [Data.Options] or
// [Balance.Options] afterwards:
//
//	options := cfg.Model.Options.(*resnet.Options)
//
// # Rules
//
// A bound on one key stands with the key; a rule over several keys is a row in rules.go; a value whose
// implementation comes in a later version is a row in later.go, and deleting the row is all that is
// needed to accept it.
package config
