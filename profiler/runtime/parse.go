package runtime

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// parse parses a record in the form that appendJSON writes. It returns false for every other form. A long run has
// millions of records, so parse is optimised: it is about ten times as fast as encoding/json.
func (r *Record) parse(line []byte) bool {
	p := parser{rest: line, ok: true}
	*r = Record{Telemetry: telemetry.Unknown()}
	for i := range entries {
		e := &entries[i]
		switch {
		case e.optional && !bytes.HasPrefix(p.rest, []byte(e.key)):
			if e.sensor < telemetry.Count {
				r.Telemetry[e.sensor] = math.NaN()
			}
		case e.sensor < telemetry.Count:
			r.Telemetry[e.sensor] = p.float(e.key)
		case e.kind == telemetry.Number:
			r.Values[e.metric] = p.float(e.key)
		case e.kind == telemetry.Integer:
			r.setInteger(e.metric, p.integer(e.key))
		case e.kind == telemetry.Seconds:
			*r.Seconds(e.metric) = p.seconds(e.key)
		case e.kind == telemetry.Instant:
			r.Timestamp = p.instant(e.key)
		case e.kind == telemetry.Flag:
			r.Skipped = p.flag(e.key)
		default: // derived metrics are computed from other metrics
			p.float(e.key)
		}
	}
	p.expect("}")
	return p.ok && len(p.rest) == 0 && r.Iteration <= MostStep && r.negative() == ""
}

// parser reads a text from the start of rest. After the first unexpected text, ok remains false.
type parser struct {
	rest []byte
	ok   bool
}

// null reports whether rest starts with text, and if so removes text from rest.
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

// flag parses true or false.
func (p *parser) flag(key string) bool {
	text := p.value(key)
	p.ok = p.ok && (string(text) == "true" || string(text) == "false")
	return string(text) == "true"
}

// instant parses a time in the form that appendTimestamp writes.
func (p *parser) instant(key string) time.Time {
	if bytes.HasPrefix(p.rest, []byte(key)) && bytes.HasPrefix(p.rest[len(key):], []byte("null")) {
		p.value(key)
		return time.Time{}
	}
	return time.UnixMicro(int64(p.seconds(key) / time.Microsecond))
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
