package program

import "github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"

// The types for the parts of other programs, which they pass to [Main].
type (
	// Part is a part that a configuration selects by name: a [Model], a [DataSet] or a [Policy]. Built-in parts and
	// those passed to [Main] are treated alike.
	Part = parts.Part

	// Model is a network that configurations select with model.name.
	Model = parts.Model

	// ModelOptions are a model's own keys of [model]. Build is called after the keys are set.
	ModelOptions = parts.ModelOptions

	// DataSet is a data set that configurations select with data.dataset.
	DataSet = parts.DataSet

	// DataSetOptions are a data set's own keys of [data]. Open is called on each rank after the keys are set. An error
	// in the data is a *data.Fault; the program then ends with exit code 3.
	DataSetOptions = parts.DataSetOptions

	// Policy is a balancing policy that configurations select with balance.policy.
	Policy = parts.Policy

	// PolicyOptions are a policy's own keys of [balance]. New is called on each rank after the keys are set, with valid
	// options.
	PolicyOptions = parts.PolicyOptions

	// NoKeys is embedded in the options of a part without its own keys.
	NoKeys = parts.NoKeys
)
