package runtime

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// parse parses a record in the form that appendJSON writes. It returns false for every other form. It is about ten
// times as fast as encoding/json, because a long run has millions of records.
func (r *Record) parse(line []byte) bool {
	p := parser{rest: line, ok: true}
	*r = Record{Telemetry: telemetry.Unknown()}
	r.Epoch = p.integer(`{"epoch":`)
	r.Iteration = p.integer(iterationKey)
	p.ok = p.ok && r.Iteration >= 0 && r.Iteration <= MostStep
	r.Loss = p.float(`,"loss":`)
	p.float(`,"throughput":`)
	p.seconds(`,"iteration_time":`)
	r.DataLoading = p.seconds(`,"data_loading_time":`)
	r.Forward = p.seconds(`,"forward_time":`)
	r.Backward = p.seconds(`,"backward_time":`)
	r.Communication = p.seconds(`,"communication_time":`)
	r.Optimizer = p.seconds(`,"optimizer_time":`)
	r.CommunicationHidden = p.seconds(`,"communication_hidden_time":`)
	r.Exchanges = p.seconds(`,"exchange_time":`)
	r.Bytes = p.integer(`,"communication_bytes":`)
	r.Buckets = p.integer(`,"communication_buckets":`)
	r.parseColumns(&p, midColumns)
	r.BatchSize = p.integer(`,"batch_size":`)
	if !p.null(`,"timestamp":null`) {
		r.Timestamp = time.UnixMicro(int64(p.seconds(`,"timestamp":`) / time.Microsecond))
	}
	r.Rank = int(p.integer(`,"rank":`))
	r.Accuracy = p.float(`,"accuracy":`)
	r.LearningRate = p.float(`,"learning_rate":`)
	r.GradNorm = p.float(`,"grad_norm":`)
	r.LossScale = p.float(`,"loss_scale":`)
	if r.Skipped = p.null(`,"skipped":true`); !r.Skipped {
		p.expect(`,"skipped":false`)
	}
	if bytes.HasPrefix(p.rest, []byte(stepTimeKey)) {
		r.StepTime = p.seconds(stepTimeKey)
		r.TrainingTime = p.seconds(trainingTimeKey)
	}
	r.parseColumns(&p, lastColumns)
	p.expect("}")
	return p.ok && len(p.rest) == 0
}

func (r *Record) parseColumns(p *parser, columns []column) {
	for _, c := range columns {
		if r.Telemetry[c.sensor] = math.NaN(); !c.optional || bytes.HasPrefix(p.rest, []byte(c.key)) {
			r.Telemetry[c.sensor] = p.float(c.key)
		}
	}
}

// parser reads the text at the start of rest. After the first unexpected text, ok remains false.
type parser struct {
	rest []byte
	ok   bool
}

// null removes text from the start of rest, and reports whether rest started with it.
func (p *parser) null(text string) bool {
	if len(p.rest) < len(text) || string(p.rest[:len(text)]) != text {
		return false
	}
	p.rest = p.rest[len(text):]
	return true
}

func (p *parser) expect(text string) { p.ok = p.null(text) && p.ok }

// value returns the text of the value that belongs to key.
func (p *parser) value(key string) []byte {
	p.expect(key)
	end := bytes.IndexAny(p.rest, ",}")
	if end < 0 {
		p.ok = false
		return nil
	}
	v := p.rest[:end]
	p.rest = p.rest[end:]
	return v
}

// digits parses an integer with at most 18 digits.
func (p *parser) digits(text []byte) (v int64) {
	p.ok = p.ok && len(text) > 0 && len(text) <= 18
	for _, c := range text {
		p.ok = p.ok && c >= '0' && c <= '9'
		v = 10*v + int64(c-'0')
	}
	return v
}

func (p *parser) integer(key string) int64 {
	text := p.value(key)
	if positive, ok := bytes.CutPrefix(text, []byte("-")); ok {
		return -p.digits(positive)
	}
	return p.digits(text)
}

// seconds parses whole nanoseconds in the form that appendSeconds writes.
func (p *parser) seconds(key string) time.Duration {
	text := p.value(key)
	text, negative := bytes.CutPrefix(text, []byte("-"))
	whole, fraction, point := bytes.Cut(text, []byte("."))
	p.ok = p.ok && len(whole) <= 10 && len(fraction) <= 9
	n := p.digits(whole)
	p.ok = p.ok && n <= mostSeconds
	d := time.Duration(n) * time.Second
	if point {
		nanoseconds := p.digits(fraction)
		for range 9 - len(fraction) {
			nanoseconds *= 10
		}
		d += time.Duration(nanoseconds)
	}
	if negative {
		return -d
	}
	return d
}

func (p *parser) float(key string) float64 {
	text := p.value(key)
	if string(text) == "null" {
		return math.NaN()
	}
	v, err := strconv.ParseFloat(string(text), 64)
	p.ok = p.ok && err == nil && isNumber(text)
	return v
}

// isNumber reports whether text is a valid JSON number. ParseFloat accepts further forms, for example "Inf", "0x1p3",
// "1_0", "1." and "01".
func isNumber(text []byte) bool {
	digits := func() (n int) {
		for n < len(text) && text[n] >= '0' && text[n] <= '9' {
			n++
		}
		text = text[n:]
		return n
	}
	skip := func(chars string) bool {
		if len(text) == 0 || strings.IndexByte(chars, text[0]) < 0 {
			return false
		}
		text = text[1:]
		return true
	}
	skip("-")
	zero := len(text) > 0 && text[0] == '0'
	if n := digits(); n == 0 || zero && n > 1 {
		return false
	}
	if skip(".") && digits() == 0 {
		return false
	}
	if skip("eE") {
		skip("+-")
		if digits() == 0 {
			return false
		}
	}
	return len(text) == 0
}
