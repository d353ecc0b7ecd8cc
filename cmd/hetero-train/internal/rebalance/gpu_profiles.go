package rebalance

import (
	"context"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

// LoadProfiles reads the file that profile.gpu_profiles names. It returns nil if the key is empty.
func LoadProfiles(c *config.Config) (*profiles.Ranks, error) {
	if c.Profile.GPUProfiles == "" {
		return nil, nil
	}
	p, err := profiles.Load(c.Profile.GPUProfiles)
	if err != nil {
		return nil, exit.Usagef("profile.gpu_profiles: %w", err)
	}
	return p, nil
}

// givenScores sets the scores and the curves of all ranks from the file that profile.gpu_profiles names.
func (b *Balancer) givenScores(ctx context.Context) error {
	err := b.run.Rank.Team.Send(ctx, "compute scores", &b.given, func() error {
		path := b.cfg.Profile.GPUProfiles
		p, err := LoadProfiles(b.cfg)
		if p == nil || err != nil {
			return err
		}
		fingerprints := make([]string, len(b.known))
		for rank, k := range b.known {
			fingerprints[rank] = k.Fingerprint
		}
		ranks, mismatch := p.Match(fingerprints)
		if mismatch != "" {
			b.log().Warn("profile.gpu_profiles does not match this hardware and is ignored: "+mismatch, "file", path)
			return nil
		}
		for rank, r := range ranks {
			if got, want := r.Measured.DType, b.run.Rank.Types[rank].Type; got != "" && got != want {
				b.log().Warn("a rank trains in another precision than profile.gpu_profiles was measured in, so the first shares may be less accurate",
					"file", path, "rank", rank, "got", got, "want", want)
			}
		}
		b.profile = &profiles.Ranks{Origin: p.Origin, Score: p.Score, Ranks: ranks}
		b.profile.Seal()
		b.given.Scores = b.profile.Scores()
		if b.traits().Learns {
			b.given.Curves, b.given.Errors = b.profiledCurves(ranks)
		}
		return nil
	})
	b.scores = b.given.Scores
	return err
}

// profiledCurves returns the step-time curves of a profile and their errors, by rank. It returns nil if a rank has no
// step times. It returns nil and logs a warning if the step times of a rank were measured with other settings than
// those of this run.
func (b *Balancer) profiledCurves(ranks []profiles.Rank) (list []divide.Curve, errors []float64) {
	list = make([]divide.Curve, len(ranks))
	for rank, r := range ranks {
		if r.StepTimes == nil {
			return nil, nil
		}
		want := assembly.CurveSetting(b.cfg, b.run.Rank.Types[rank].Type)
		if b.run.Foreign != nil {
			want = b.run.Foreign.Setting
		}
		if got := r.StepTimes.Setting; got != want {
			b.log().Warn("the step times in profile.gpu_profiles are of another model or of other settings, and are ignored; to measure those of this run, run hetero-train profile with its configuration file",
				"file", b.cfg.Profile.GPUProfiles, "rank", rank, "got", got, "want", want)
			return nil, nil
		}
		errors = append(errors, r.StepTimes.Error)
		for _, p := range r.StepTimes.Points {
			list[rank] = append(list[rank], divide.Point{Samples: float64(p.Samples), Seconds: float64(p.Seconds)})
		}
	}
	return list, errors
}
