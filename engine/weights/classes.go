package weights

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// ClassesKey is the key of a safetensors file's metadata that contains the names of the classes, as a JSON list.
const ClassesKey = "class_names"

// EncodeClasses returns the text of metadata key ClassesKey.
func EncodeClasses(names []string) string {
	text, err := json.Marshal(names)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return string(text)
}

// ClassesOf returns the names of the classes in the metadata of a file, by number. It returns nil if the metadata has
// no names.
func ClassesOf(f *checkpoint.File) (names []string) {
	if json.Unmarshal([]byte(f.Metadata()[ClassesKey]), &names) != nil {
		return nil
	}
	return names
}

// Named reports whether names identify the classes. It returns false if the names only repeat the numbers of the
// classes (LABEL_0 in transformers), or if two classes have the same name.
func Named(names []string) bool {
	seen, numbers := map[string]bool{}, true
	for i, name := range names {
		if seen[name] {
			return false
		}
		seen[name] = true
		numbers = numbers &&
			slices.Contains([]string{"LABEL_" + strconv.Itoa(i), "class " + strconv.Itoa(i), strconv.Itoa(i)}, name)
	}
	return len(names) > 0 && !numbers
}

// Numbers reports whether all names are integers, such as the digits 0 to 9. Two lists of such names can be compared by
// name.
func Numbers(names []string) bool {
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool {
		_, err := strconv.Atoi(name)
		return err != nil
	})
}

// Locate returns, for each element of wanted, its index in names. Names that differ only in case match if this is
// unambiguous. If an element has no match, or only a match that an earlier element has taken, ok is false, and
// unmatched is this element.
func Locate(wanted, names []string) (at []int, unmatched string, ok bool) {
	exact, folded := map[string]int{}, map[string][]int{}
	for i, name := range names {
		exact[name] = i
		key := strings.ToLower(name)
		folded[key] = append(folded[key], i)
	}
	taken := map[int]bool{}
	for _, name := range wanted {
		i, found := exact[name]
		if like := folded[strings.ToLower(name)]; !found && len(like) == 1 {
			i, found = like[0], true
		}
		if !found || taken[i] {
			return nil, name, false
		}
		taken[i] = true
		at = append(at, i)
	}
	return at, "", true
}

// InOrder reports whether Locate found each name at its own position.
func InOrder(at []int) bool {
	for i, a := range at {
		if i != a {
			return false
		}
	}
	return true
}

// DescribeClasses returns a text with the first classes of a list.
func DescribeClasses(names []string) string {
	const most = 6
	text := fmt.Sprintf("%q", names[:min(len(names), most)])
	if len(names) > most {
		text = fmt.Sprintf("%s … (%d classes)", strings.TrimSuffix(text, "]"), len(names))
	}
	return strings.TrimPrefix(strings.TrimSuffix(text, "]"), "[")
}

// head maps the outputs of the model's head to those of the file's head.
type head struct {
	rows    []int  // row of the file for each output of the model; nil: the same order
	unnamed bool   // the file or the model has no class names, so outputs correspond by number
	other   string // reason why the classes do not correspond; "" if they do
}

// matchHead compares the class names of the file with those of the model. The parameter outputs is the number of
// outputs of both.
func (o Options) matchHead(outputs int) (h head) {
	if slices.Equal(o.FileClasses, o.Classes) && len(o.Classes) > 0 {
		return h
	}
	if !Named(o.FileClasses) || !Named(o.Classes) || len(o.FileClasses) > outputs || len(o.Classes) > outputs {
		h.unnamed = true
		return h
	}
	at, missing, ok := Locate(o.Classes, o.FileClasses)
	if !ok {
		h.other = fmt.Sprintf("the file has no class %q; its classes are %s", missing, DescribeClasses(o.FileClasses))
		return h
	}
	if InOrder(at) {
		return h
	}
	for row := range outputs { // outputs without a name keep their order
		if len(at) < outputs && !slices.Contains(at, row) {
			at = append(at, row)
		}
	}
	h.rows = at
	return h
}

// pick returns rows of a tensor. The parameter rows contains their indices in the required order. src is in plain
// layout.
func pick(src []byte, rows []int) []byte {
	size := len(src) / len(rows)
	dst := make([]byte, 0, len(src))
	for _, row := range rows {
		dst = append(dst, src[row*size:(row+1)*size]...)
	}
	return dst
}
