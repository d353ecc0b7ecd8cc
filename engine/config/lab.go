package config

// Lab contains the keys of table [lab].
type Lab struct {
	Weather string // path of a scenario file; "": no scenario
}

// Keys implements [Options].
func (l *Lab) Keys() []Key {
	return each(Key.Operational, []Key{
		String(&l.Weather, "weather", "").Path().
			Doc("File with a scenario of changes during training: slower ranks, noisy neighbours, slow links (docs/lab.md). Every rank reads the file, and all copies must be equal. Empty: no changes."),
	})
}
