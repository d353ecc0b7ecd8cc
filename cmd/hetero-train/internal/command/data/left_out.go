package data

import (
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

// leftOutPart is a damaged file, or a sample in it, that was left out when the data set was opened.
type leftOutPart struct {
	Path  string `json:"path"`
	Whole bool   `json:"whole"` // true if all samples of the file were left out
	Error string `json:"error"`
}

// leftOutOf lists the damaged parts of a data set that were left out when it was opened.
func leftOutOf(set *parts.Opened) (list []leftOutPart) {
	for _, l := range set.LeftOut() {
		list = append(list, leftOutPart{l.Path, l.Whole, l.Reason.Error()})
	}
	return list
}

func (l leftOutPart) String() string {
	of := "a part of "
	if l.Whole {
		of = ""
	}
	return fmt.Sprintf("damaged: %s%q: %s", of, l.Path, show.Foreign(l.Error))
}
