package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hetero-train/hetero-train/engine/objects"
)

// owner is the content of the object `owner`.
type owner struct {
	Run     string `json:"run"`     // random, equal for all processes of a run
	Process string `json:"process"` // random
}

// TakenError reports that another process writes to the folder.
type TakenError struct {
	Folder string
	Same   bool // the other process trains the same run
}

func (e *TakenError) Error() string {
	who := "another run"
	if e.Same {
		who = "another process of this run"
	}
	return fmt.Sprintf("%s: %s has begun to write to this folder, so this process no longer does: stop one of them, and set experiment.name or checkpoint.upload to another name if both must train",
		e.Folder, who)
}

// NewRun returns the ID of a new run.
func NewRun() string { return rand.Text() }

// Owner returns the ID of the run that owns the folder; "" if it has no owner.
func (f *Folder) Owner(ctx context.Context) (run string, err error) {
	o, _, _, err := f.owner(ctx)
	return o.Run, err
}

func (f *Folder) owner(ctx context.Context) (o owner, text []byte, etag string, err error) {
	text, etag, err = f.client.ReadTagged(ctx, f.name.Join(ownerFile), mostName)
	if errors.Is(err, fs.ErrNotExist) {
		return owner{}, nil, "", nil
	}
	if err == nil {
		if err = json.Unmarshal(text, &o); err != nil || o.Run == "" {
			err = fmt.Errorf("%s: got %.100q, want the ID of a run: remove this object if no run uses the folder",
				f.name.Join(ownerFile), text)
		}
	}
	return o, text, etag, err
}

// Claim makes this process the only one that writes to the folder. The parameter before is the earlier result of Owner,
// on which the caller based its decision. If another run has claimed the folder since then, Claim returns a
// *TakenError.
func (f *Folder) Claim(ctx context.Context, run, before string) error {
	text, err := json.Marshal(owner{run, rand.Text()})
	if err != nil {
		return err
	}
	text = append(text, '\n')
	for {
		now, _, etag, err := f.owner(ctx)
		if err != nil {
			return err
		}
		if now.Run != before && now.Run != run {
			return &TakenError{Folder: f.String()}
		}
		err = f.client.Replace(ctx, f.name.Join(ownerFile), text, etag)
		if err != nil && !errors.Is(err, objects.ErrReplaced) {
			return err
		}
		// Read `owner` back, because some servers ignore the condition. A repeated request also fails if the first one
		// succeeded, but its response was lost.
		_, got, _, readErr := f.owner(ctx)
		switch {
		case readErr != nil:
			return readErr
		case bytes.Equal(got, text):
			f.claim = text
			return nil
		case err == nil:
			return &TakenError{Folder: f.String()}
		}
	}
}

// check returns a *TakenError if another process has claimed the folder after this one.
func (f *Folder) check(ctx context.Context) error {
	if f.claim == nil {
		return nil
	}
	now, text, _, err := f.owner(ctx)
	if err != nil || bytes.Equal(text, f.claim) {
		return err
	}
	var own owner
	if err := json.Unmarshal(f.claim, &own); err != nil {
		return err
	}
	return &TakenError{f.String(), now.Run == own.Run}
}
