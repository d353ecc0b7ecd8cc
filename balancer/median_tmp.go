package balancer

type MedianRule struct{ ranks int }

func NewMedianRule(ranks int) *MedianRule          { return &MedianRule{ranks} }
func (m *MedianRule) Observe(own []float64) []bool { return make([]bool, m.ranks) }
