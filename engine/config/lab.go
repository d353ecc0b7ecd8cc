package config

// Lab is the [lab] table.
type Lab struct {
	Weather string // "" = none
}

// Keys lists the table's keys.
func (l *Lab) Keys() []Key {
	return each(Key.Operational, []Key{
		String(&l.Weather, "weather", "").
			Doc("File with a scenario of changes during training: slower ranks, noisy neighbours, slow links (docs/lab.md). Every rank reads the file, and all copies must be equal. Empty: no changes."),
	})
}
