package rendezvous

import (
	"context"
	"errors"
	"slices"
	"time"
)

// NoAnswer is what Survey has of a rank that does not answer.
const NoAnswer = "no answer"

// surveyTime is how long Survey waits for answers: they come from a goroutine that does nothing else.
const surveyTime = time.Second

// Survey asks every rank what it is doing (Options.Status) and returns the answers, by rank, after a second at most: that of a
// frozen rank is NoAnswer. It is for the watchdog that says where everybody is when a step does not end.
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
		values, err = g.cancel(ctx, id, c) // gives those that are there
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

// answerSurvey tells what this rank is doing.
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

// survey is one that not all ranks have answered.
type survey struct {
	number  uint32
	request *request
	values  [][]byte // by rank; empty: no answer, else a byte and the text
	left    int
}

// startSurvey asks all ranks. One rank may have one survey at a time. s.mu is held, as below.
func (s *server) startSurvey(r *request) {
	if slices.ContainsFunc(s.surveys, func(other *survey) bool { return other.request.peer == r.peer }) {
		s.refuse(r, errors.New("this rank has a survey in progress"))
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

// answer notes a rank's answer. Late ones are for a survey that is over.
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

// endSurvey replies with the answers that are there.
func (s *server) endSurvey(one *survey) {
	s.reply(one.request, one.values)
	s.surveys = slices.DeleteFunc(s.surveys, func(other *survey) bool { return other == one })
}
