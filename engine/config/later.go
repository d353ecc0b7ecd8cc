package config

// later lists the valid values that this version does not implement. To implement one, delete its row; no other line of
// this package changes.
var later = []laterRow{
	{key: "parallel.wire_dtype", value: "fp16", missing: "gradients in fp16 (use \"auto\" or \"bf16\")"},
}

// laterRow is a value, or a condition on several keys, that this version does not implement.
type laterRow struct {
	key     string
	value   string               // unsupported value, for a row without when
	waits   string               // values that meet the condition, as text
	when    func(c *Config) bool // condition; nil if value decides
	missing string               // missing feature, which completes "this version lacks …"
}

func laterMessage(missing string) string { return "this version lacks " + missing }

// laterValue returns the feature that a value of a string key needs and this version lacks. It returns "" if this
// version supports the value.
func laterValue(key, value string) string {
	for _, row := range later {
		if row.when == nil && row.key == key && row.value == value {
			return row.missing
		}
	}
	return ""
}

func (l *loader) checkLater() {
	for _, row := range later {
		if l.bad[row.key] {
			continue
		}
		waits := false
		if row.when != nil {
			waits = row.when(l.config)
		} else {
			waits = *l.keys[row.key].field.(*string) == row.value
		}
		if waits {
			l.faultAt(row.key, Fault{Message: laterMessage(row.missing), Got: l.keys[row.key].text()})
		}
	}
}
