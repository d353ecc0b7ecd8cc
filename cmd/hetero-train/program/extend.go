package program

import "github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"

// The parts of a program of your own, which it passes to [Main].
type (
	// Part is something that a configuration chooses by name: a [Model], a [DataSet] or a [Policy]. The parts of this program
	// and those that are passed to [Main] are treated alike.
	Part = parts.Part

	// Model is a network that configurations choose with model.name.
	Model = parts.Model

	// ModelOptions are a model's own keys of [model]. Build is called when they are set.
	ModelOptions = parts.ModelOptions

	// DataSet is a data set that configurations choose with data.dataset.
	DataSet = parts.DataSet

	// DataSetOptions are a data set's own keys of [data]. Open is called when they are set, on each rank. An error that the
	// data cause is a *data.Fault: the program then ends with exit code 3.
	DataSetOptions = parts.DataSetOptions

	// Policy is a balancing policy that configurations choose with balance.policy.
	Policy = parts.Policy

	// PolicyOptions are a policy's own keys of [balance]. New is called when they are set, on each rank, with valid options.
	PolicyOptions = parts.PolicyOptions

	// NoKeys is embedded in the options of a part that has no keys of its own.
	NoKeys = parts.NoKeys
)
