package rendezvous

import (
	"context"
	"errors"
	"slices"
	"time"
)

// NoAnswer is the entry of Survey for a rank that does not reply.
const NoAnswer = "no answer"

// surveyTime limits the wait for replies. It can be short, because ranks answer from a separate goroutine.
const surveyTime = time.Second

// Survey asks every rank for its activity (Options.Status), and returns the replies by rank. It waits at most about a
// second. The entry of a rank that does not reply is NoAnswer. A watchdog can use Survey to report the activity of all
// ranks when a step does not end.
func (g *Group) Survey(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	id, c, err := g.expect()
	if err != nil {
		return nil, err
	}
	var e encoder
	e.u32(id)
	g.outbox.push(kindSurvey, e.b)
	var values [][]byte
	select {
	case err = <-c.done:
		values = c.values
	case <-ctx.Done():
		values, err = g.cancel(ctx, id, c) // ends the survey with the replies so far
	}
	if err != nil {
		return nil, err
	}
	if len(values) != g.Size() {
		return nil, errMalformed
	}
	texts := make([]string, len(values))
	for rank, value := range values {
		if texts[rank] = NoAnswer; len(value) > 0 {
			texts[rank] = string(value[1:])
		}
	}
	return texts, nil
}

// answerSurvey sends this rank's activity.
func (g *Group) answerSurvey(number uint32) {
	text := ""
	if g.options.Status != nil {
		text = g.options.Status()
	}
	var e encoder
	e.u32(number)
	e.text(cut(text, maxText))
	g.outbox.push(kindAnswer, e.b)
}

// survey is a survey to which some ranks have not replied yet.
type survey struct {
	number  uint32
	request *request
	values  [][]byte // replies by rank; empty: no reply, otherwise one byte and the text
	left    int
}

// startSurvey asks all ranks for their activity. Each rank may have started only one survey that is not complete. The
// callers of startSurvey and of the functions below must hold s.mu.
func (s *server) startSurvey(r *request) {
	if slices.ContainsFunc(s.surveys, func(other *survey) bool { return other.request.peer == r.peer }) {
		s.refuse(r, errors.New("this rank has already started a survey that is not complete"))
		return
	}
	s.lastSurvey++
	one := &survey{number: s.lastSurvey, request: r, values: make([][]byte, len(s.peers))}
	s.surveys = append(s.surveys, one)
	var e encoder
	e.u32(one.number)
	for _, p := range s.peers {
		if !p.left {
			one.left++
			s.send(p, kindAsk, e.b)
		}
	}
}

// answer records a rank's reply. It ignores replies to a survey that has ended.
func (s *server) answer(p *peer, number uint32, text []byte) {
	i := slices.IndexFunc(s.surveys, func(one *survey) bool { return one.number == number })
	if i < 0 || s.surveys[i].values[p.member.Rank] != nil {
		return
	}
	one := s.surveys[i]
	one.values[p.member.Rank] = append([]byte{1}, text...)
	if one.left--; one.left == 0 {
		s.endSurvey(one)
	}
}

// endSurvey sends the replies that have arrived.
func (s *server) endSurvey(one *survey) {
	s.reply(one.request, one.values)
	s.surveys = slices.DeleteFunc(s.surveys, func(other *survey) bool { return other == one })
}
