package config

import (
	"os"
	"strings"
	"testing"
)

func TestEachTableIsInTheFileOfItsName(t *testing.T) {
	for _, table := range new(Config).tables() {
		text, err := os.ReadFile(table.name + ".go")
		if err != nil || !strings.Contains(string(text), ") Keys() []Key {") {
			t.Errorf("table [%s]: want its keys in %s.go (%v)", table.name, table.name, err)
		}
	}
}
