package parts

import "github.com/hetero-train/hetero-train/engine/config"

// Defaults returns the configuration that an empty file describes.
func Defaults() *config.Config {
	cfg, err := config.Load("", BuiltinCatalog)
	if err != nil {
		panic(err) // the defaults are valid; a test checks this
	}
	return cfg
}
