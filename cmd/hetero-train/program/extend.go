package program

import "github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"

// Types of the components that other programs pass to [Main].
type (
	// Part is a component that a configuration selects by name: a [Model], a [DataSet], a [LanguageModel], a
	// [TokenData] or a [Policy]. Built-in components have no abilities that the components that a caller passes to
	// [Main] lack.
	Part = parts.Part

	// Model is a network that configurations select with model.name.
	Model = parts.Model

	// ModelOptions are the keys of table [model] that only one model has. The program sets the keys and then calls
	// Build.
	ModelOptions = parts.ModelOptions

	// DataSet is a data set that configurations select with data.dataset.
	DataSet = parts.DataSet

	// DataSetOptions are the keys of table [data] that only one data set has. The program sets the keys and then calls
	// Open on each rank. Open must report an error in the data as a *data.Fault; the program then ends with exit code
	// 3.
	DataSetOptions = parts.DataSetOptions

	// MemoryUser is implemented by the options of data sets of images that fetch or decompress samples before their
	// use, or whose images all have the same size.
	MemoryUser = parts.MemoryUser

	// ReadMemory describes the memory that reading a data set of images needs.
	ReadMemory = parts.ReadMemory

	// LanguageModel is a network that reads tokens. Configurations select it with model.name.
	LanguageModel = parts.LanguageModel

	// LanguageOptions are the keys of table [model] that only one language model has. The program sets the keys and
	// then calls BuildLanguage.
	LanguageOptions = parts.LanguageOptions

	// TokenData is a text data set that configurations select with data.dataset.
	TokenData = parts.TokenData

	// TokenDataOptions are the keys of table [data] that only one text data set has. The program sets the keys and then
	// calls OpenTokens on each rank. OpenTokens must report an error in the data as a *data.Fault.
	TokenDataOptions = parts.TokenDataOptions

	// TokenSplits are the samples that OpenTokens returns. Their fields are the inputs of language.Predict.
	TokenSplits = parts.TokenSplits

	// Policy is a balancing policy that configurations select with balance.policy.
	Policy = parts.Policy

	// PolicyOptions are the keys of table [balance] that only one policy has. The program sets the keys and then calls
	// New on each rank. The program checks the balancer.Options before the call.
	PolicyOptions = parts.PolicyOptions

	// TraitsOfPolicy is implemented by the options of policies whose balancer.Traits are not the zero value.
	TraitsOfPolicy = parts.TraitsOfPolicy

	// NoKeys is the empty set of options. A component without keys of its own embeds it in its options.
	NoKeys = parts.NoKeys
)
