package dqn

import "time"

// Point is one point of a training curve.
type Point struct {
	Episodes int64   `json:"episodes"`
	Updates  int64   `json:"updates"`
	Return   float64 `json:"return"` // mean, over the last 100 episodes, of the sum of rewards
	Error    float64 `json:"error"`  // moving average of the absolute temporal-difference error
	Explore  float64 `json:"explore"`
}

// curve keeps at most curvePoints points at equal distances. When it is full, it drops every second point and doubles
// the distance.
type curve struct {
	Every  int64   `json:"every"` // number of episodes between two points
	Points []Point `json:"points"`
}

const curvePoints = 512

func (c *curve) add(p *Progress) {
	c.Every = max(1, c.Every)
	if n := len(c.Points); n > 0 && p.Episodes < c.Points[n-1].Episodes+c.Every || p.Episodes == 0 {
		return
	}
	if len(c.Points) == curvePoints {
		for i := range curvePoints / 2 {
			c.Points[i] = c.Points[2*i+1]
		}
		c.Points = c.Points[:curvePoints/2]
		c.Every *= 2
		if p.Episodes < c.Points[len(c.Points)-1].Episodes+c.Every {
			return
		}
	}
	c.Points = append(c.Points, Point{p.Episodes, p.Updates, p.Return, p.Error, p.Explore})
}

// Progress is the state of a training run.
type Progress struct {
	Episodes  int64   `json:"episodes"`  // number of ended episodes in the whole training run
	Decisions int64   `json:"decisions"` // number of actions taken
	Updates   int64   `json:"updates"`   // number of changes of the weights
	Skipped   int64   `json:"skipped"`   // number of updates that were skipped because the gradient was not finite
	Explore   float64 `json:"explore"`   // current probability of a random action
	// largest number of jobs that waited or ran at a decision; 0: no environment is a Counter
	Jobs int `json:"jobs"`
	// Return is the mean, over the last 100 episodes, of the sum of rewards. It is NaN before the end of the first
	// episode.
	Return float64 `json:"-"`
	// Error is the moving average of the absolute temporal-difference error, over about 100 updates.
	Error float64 `json:"error"`

	Target    int64         `json:"-"` // number of episodes after which training is complete
	Rate      float64       `json:"-"` // episodes per second in all calls of Run; 0: not known yet
	Remaining time.Duration `json:"-"` // estimated remaining time; 0: not known yet, or training is complete
}
