package parts

import "github.com/hetero-train/hetero-train/engine/config"

// KindNames returns the names of the given models, data sets or policies, in the order of the catalog.
func KindNames(kinds []config.Kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return names
}

// Defaults returns the configuration that an empty file describes.
func Defaults() *config.Config {
	cfg, err := config.Load("", BuiltinCatalog)
	if err != nil {
		panic(err) // the defaults are valid; a test checks this
	}
	return cfg
}
