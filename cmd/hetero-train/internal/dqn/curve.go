package dqn

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

// Curve returns up to 512 points of the training curve since the first episode.
func (l *Learner) Curve() []Point { return append([]Point(nil), l.curve.Points...) }
