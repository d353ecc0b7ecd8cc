package webdataset

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// maxClasses is the largest permitted number of classes with numeric labels.
const maxClasses = 1 << 16

var errFewNames = errors.New("too few class names")

// classes maps the labels of all shards to classes. It returns the class names, and for each shard the classes of its
// Texts. The parameter names, if not nil, contains the names of numeric classes.
func classes(shards []*index, names []string) ([]string, [][]int32, error) {
	byText := map[string]int32{}
	numbers, example := 0, ""
	for _, s := range shards {
		for _, text := range s.Texts {
			if _, err := strconv.ParseUint(text, 10, 31); err == nil {
				numbers++
			} else {
				example = text
			}
			byText[text] = 0
		}
	}
	var all []string
	switch {
	case example == "":
		var err error
		if all, err = numbered(byText, names); err != nil {
			return nil, nil, err
		}
	case numbers > 0:
		return nil, nil, fmt.Errorf("some labels are numbers and others are names, such as %.100q", example)
	default:
		for text := range byText {
			all = append(all, text)
		}
		slices.Sort(all)
		for class, text := range all {
			byText[text] = int32(class)
		}
	}
	of := make([][]int32, len(shards))
	for k, s := range shards {
		for _, text := range s.Texts {
			of[k] = append(of[k], byText[text])
		}
	}
	return all, of, nil
}

// numbered sets the class of each numeric label. It returns the names of all classes from 0 to the largest number.
func numbered(byText map[string]int32, names []string) ([]string, error) {
	largest := int64(0)
	for text := range byText {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n >= maxClasses {
			return nil, fmt.Errorf("label %s, want below %d", text, maxClasses)
		}
		byText[text] = int32(n)
		largest = max(largest, n)
	}
	if names != nil {
		if largest >= int64(len(names)) {
			return nil, fmt.Errorf("%w: got %d names, want more than %d, the largest label", errFewNames, len(names),
				largest)
		}
		return names, nil
	}
	for n := range largest + 1 {
		names = append(names, strconv.FormatInt(n, 10))
	}
	return names, nil
}
