package parts

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strconv"

	"github.com/hetero-train/hetero-train/engine/data"
)

// Print returns the fingerprint of the data. It reads up to identitySamples samples of each part.
func (o *Opened) Print(ctx context.Context) (f Fingerprint, err error) {
	defer func() {
		left := o.LeftOut()
		for _, l := range left[:min(len(left), mostShown)] {
			f.LeftOut = append(f.LeftOut, l.Path)
		}
	}()
	switch {
	case o.Tokens != nil:
		f = o.Tokens.Print
		f.Digest = o.Tokens.Identity
		return f, nil
	case o.Content == nil:
		return f, nil
	}
	h := sha256.New()
	for _, part := range []struct {
		set   data.Dataset
		print **PartPrint
	}{{o.stored.Train, &f.Train}, {o.stored.Eval, &f.Eval}} {
		if part.set == nil {
			io.WriteString(h, "none\n")
			continue
		}
		if *part.print, err = printPart(ctx, h, part.set); err != nil {
			return Fingerprint{}, fmt.Errorf("data set %s: %w", o.Name, err)
		}
	}
	f.Digest = digest(h.Sum(nil))
	return f, nil
}

// Differences describes how the two parts of the data differ from the parts of earlier data, whose fingerprint is
// previous. A text is "" if the parts are equal or unknown.
func (o *Opened) Differences(previous, now Fingerprint) (train, eval string) {
	name := func(part string, first int) func(i int) string {
		if o.Tokens != nil || o.Content == nil {
			return func(i int) string { return fmt.Sprintf("%s sample %d", part, i) }
		}
		return func(i int) string { return strconv.Quote(o.Content.Name(first + i)) }
	}
	first := 0
	if now.Train != nil {
		first = int(now.Train.Units)
	}
	if previous.Train == nil && previous.Eval == nil { // imported weights
		return "", ""
	}
	train = difference("training", previous.Train, now.Train, name("training", 0))
	eval = difference("evaluation", previous.Eval, now.Eval, name("evaluation", first))
	if train != "" {
		train += leftOutBefore(previous, now)
	}
	return train, eval
}

// Repaired reports whether the data differ from the earlier data only in repaired samples. These could not be read then
// and can be read now. The number and the order of the samples are then the same. The parameter previous is the
// fingerprint of the earlier data. The result text describes the repaired samples.
func (o *Opened) Repaired(previous, current Fingerprint) (text string, ok bool) {
	if o.Content == nil || previous.Train == nil || current.Train == nil ||
		(previous.Eval == nil) != (current.Eval == nil) {
		return "", false
	}
	first, count, name := 0, 0, ""
	for _, part := range [][2]*PartPrint{{previous.Train, current.Train}, {previous.Eval, current.Eval}} {
		a, b := part[0], part[1]
		if a == nil {
			continue
		}
		if a.Unit != b.Unit || a.Units != b.Units || a.Rest != b.Rest || len(a.Sums) != len(b.Sums) {
			return "", false
		}
		for k := range a.count() {
			switch {
			case a.sum(k) == b.sum(k):
			case !a.bad(k) || b.bad(k):
				return "", false
			default:
				if count++; name == "" {
					name = o.Content.Name(first + sampleAt(k, a.count(), a.Units))
				}
			}
		}
		first += int(a.Units)
	}
	return fmt.Sprintf("the data differ only in samples that could not be read before and can be read now: %d of the compared ones, the first %q",
		count, name), count > 0
}
