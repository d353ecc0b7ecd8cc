package config

// Lab is the [lab] table.
type Lab struct {
	Weather string // "" = none
}

// Keys lists the table's keys.
func (l *Lab) Keys() []Key {
	return each(Key.Operational, []Key{
		String(&l.Weather, "weather", "").
			Doc("File that says how ranks change while they train: slower, beside a busy neighbour, on a thin link (docs/lab.md). Every rank reads it, and all must read the same. Empty: nothing changes."),
	})
}
