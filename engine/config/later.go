package config

// later lists values that a configuration may name but this version does not implement. Delete a row when the missing
// part is implemented; no other change is needed here.
var later = []laterRow{
	{key: "model.name", value: "bert_base", missing: "the BERT model"},
	{key: "parallel.wire_dtype", value: "fp16", missing: "gradients in fp16 (use \"auto\" or \"bf16\")"},
}

// laterRow is a value, or a condition, that this version does not implement.
type laterRow struct {
	key     string
	value   string               // of a string key
	waits   string               // for other keys: the values as text,
	when    func(c *Config) bool // and the condition
	missing string               // completes "this version lacks …"
}

func laterMessage(missing string) string { return "this version lacks " + missing }

// laterValue returns what is missing for a value of a string key, "" if nothing is.
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
