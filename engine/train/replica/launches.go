package replica

import "github.com/hetero-train/hetero-train/engine/plan"

// StepLaunch is a launch of an optimizer step.
type StepLaunch struct {
	plan.LaunchInfo
	PerStep float64 // number of times that an average step executes the launch
}

// Launches returns the launches of an optimizer step of this rank with n samples of each micro-batch, in the order of
// execution. All samples have all their positions (Options.Shorter). Exchanges with other ranks and copies are not
// launches. Like Footprint, Launches compiles plans, but allocates no device memory for them.
func (r *Replica) Launches(n int) (all []StepLaunch, err error) {
	add := func(infos []plan.LaunchInfo, perStep float64) {
		for _, l := range infos {
			if !plan.IsExchange(l.Op) {
				all = append(all, StepLaunch{l, perStep})
			}
		}
	}
	micros := r.opts.Accumulation
	err = r.plans.inspect(n, func(p *plans) {
		for _, l := range p.train.plan.Launches() {
			if l.Phase == "prepare" {
				add([]plan.LaunchInfo{l}, 1)
			} else {
				add([]plan.LaunchInfo{l}, float64(micros))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if r.addition != nil {
		add(r.addition.Launches(), float64(micros-1))
	}
	add(r.optim.Launches(), 1)
	if r.mean != nil {
		add(r.mean.Launches(), 1/float64(r.opts.Average.Interval))
	}
	return all, nil
}
