package config

import "fmt"

// Superseded is a key that the command line sets several times to different values. The last value applies.
type Superseded struct {
	Key    string    // full dotted key
	Values []Setting // the different settings in the order of the command line; Setting.Key is the origin

	isDefault bool // so far set only by a default of the command line
}

// String returns the text of the warning.
func (s Superseded) String() string {
	used, text := s.Values[len(s.Values)-1], ""
	for i, v := range s.Values[:len(s.Values)-1] {
		if i > 0 {
			text += " and "
		}
		text += fmt.Sprintf("%s (%s)", v.Value, v.Key)
	}
	return fmt.Sprintf("the command line sets %s several times: %s (%s), the last one, overrides %s", s.Key, used.Value,
		used.Key, text)
}

// Superseded returns the keys that the command line sets to several values, in the order of the file.
func (c *Config) Superseded() []Superseded { return c.superseded }

// supersede records the value that an override gave to a key.
func (l *loader) supersede(o Override, k Key) {
	now := Setting{Key: o.Origin, Value: k.text()}
	s := l.last[o.Key]
	if s == nil || s.isDefault {
		l.last[o.Key] = &Superseded{Key: o.Key, Values: []Setting{now}, isDefault: o.Default}
		return
	}
	if last := &s.Values[len(s.Values)-1]; last.Value == now.Value {
		*last = now
	} else {
		s.Values = append(s.Values, now)
	}
}

// superseded returns the keys with several values, in the order of the file.
func (l *loader) superseded() (all []Superseded) {
	for _, key := range l.order {
		if s := l.last[key]; s != nil && len(s.Values) > 1 {
			all = append(all, *s)
		}
	}
	return all
}
