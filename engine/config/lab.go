package config

// Lab is the [lab] table.
type Lab struct {
	Weather string // "" = none
}

// Keys lists the table's keys.
func (l *Lab) Keys() []Key {
	return each(Key.Operational, []Key{
		String(&l.Weather, "weather", "").
			Doc("File with a scenario: ranks become slower, get a busy neighbour or a slow link during training (docs/lab.md). Every rank reads the file, and all copies must be equal. Empty: no changes."),
	})
}
