package profiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/cache"
)

// maxFile is the largest size of a profile that can be read, in bytes. The profile of a thousand ranks has about 2
// MB.
const maxFile = 64 << 20

// FormatError reports why a file cannot be read as a profile.
type FormatError struct {
	Path   string
	Reason string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("hardware profile %s: %s", e.Path, e.Reason)
}

// Load reads gpu_profiles.json. It returns a *FormatError for invalid contents, including an unknown schema version.
func Load(path string) (*Ranks, error) {
	text, err := regular.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("hardware profile: %w", err)
	}
	p := new(Ranks)
	if err := decode(text, p, &p.Origin); err != nil {
		return nil, &FormatError{path, err.Error()}
	}
	if err := p.check(); err != nil {
		return nil, &FormatError{path, err.Error()}
	}
	return p, nil
}

// decode checks the version before it decodes the rest, because a newer file may contain other types.
func decode(text []byte, into any, origin *Origin) error {
	var version struct {
		SchemaVersion *int `json:"schema_version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return fmt.Errorf("got no JSON object: %w", err)
	}
	switch v := version.SchemaVersion; {
	case v == nil:
		return errors.New("schema_version: got none: the file was not written by hetero-train profile")
	case *v > SchemaVersion:
		return fmt.Errorf("schema_version: got %d, want at most %d: a newer hetero-train wrote the file; run hetero-train profile again",
			*v, SchemaVersion)
	case *v < 1:
		return fmt.Errorf("schema_version: got %d, want 1 to %d", *v, SchemaVersion)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return err
	}
	if origin.Fingerprint == "" {
		return errors.New("fingerprint: got none: run hetero-train profile again")
	}
	return nil
}

// check returns an error for values that a balancer cannot use.
func (p *Ranks) check() error {
	if len(p.Ranks) == 0 {
		return errors.New("ranks: got none, want at least one: run hetero-train profile again")
	}
	for i, r := range p.Ranks {
		switch {
		case r.Rank != i:
			return fmt.Errorf("ranks[%d]: rank: got %d, want %d", i, r.Rank, i)
		case r.Fingerprint == "":
			return fmt.Errorf("ranks[%d]: fingerprint: got none: run hetero-train profile again", i)
		case !(r.ComputeScore > 0) || math.IsInf(r.ComputeScore, 0):
			return fmt.Errorf("ranks[%d]: compute_score: got %v, want a positive number", i, r.ComputeScore)
		case r.MemoryBytes <= 0:
			return fmt.Errorf("ranks[%d]: memory_bytes: got %d, want a positive number", i, r.MemoryBytes)
		}
		if r.StepTimes != nil {
			if err := r.StepTimes.check(); err != nil {
				return fmt.Errorf("ranks[%d]: step_times: %w", i, err)
			}
		}
	}
	return nil
}

// Save creates dir and writes both files into it. Each file is written to a temporary name and then renamed, so it is
// always complete.
func Save(dir string, ranks *Ranks, system *System) error {
	if err := SaveRanks(dir, ranks); err != nil {
		return err
	}
	return write(filepath.Join(dir, SystemFile), system)
}

// SaveRanks is like Save, but writes only gpu_profiles.json.
func SaveRanks(dir string, ranks *Ranks) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("hardware profile: %w", err)
	}
	return write(filepath.Join(dir, RanksFile), ranks)
}

func write(path string, v any) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write hardware profile %s: %w", path, err)
		}
	}()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err = cache.Replace(path, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return platform.SyncFolder(filepath.Dir(path))
}
