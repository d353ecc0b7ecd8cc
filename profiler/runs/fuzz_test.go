package runs

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// The files of a run are untrusted. Each target reads the lines of one file. The part that remains in memory must be
// limited, and it must be possible to send it to a browser.

func FuzzDecisions(f *testing.F) {
	f.Add([]byte(`{"step":10,"policy":"hybrid","shares":[1,2],"next":[2,1],"changed":true,"reason":"r","step_seconds":0.1,"share_of_oracle":0.9,"lost_seconds":{"noise":0.1},"ranks":[{"health":"sick","cause":"cpu"},{"health":"slow type"}]}`))
	f.Add([]byte("{\"step\":9223372036854775807,\"changed\":true}\n{\"step\":-1}\n{}\nnull\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := newDecided()
		for _, line := range bytes.Split(text, []byte("\n")) {
			d.add(line, 0)
		}
		if d.last != nil && (d.last.Step < 1 || d.last.Step > runtime.MostStep) || len(d.changes.list) > mostChanges ||
			len(d.alerts.list) > mostAlerts || len(d.grid.place) > d.grid.most {
			t.Errorf("last %+v, %d changes, %d alerts, %d cells", d.last, len(d.changes.list), len(d.alerts.list),
				len(d.grid.place))
		}
		if _, err := json.Marshal([]any{d.last, d.changes.list, d.alerts.list}); err != nil {
			t.Error(err)
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("{\"step\":0,\"time\":\"2026-01-02T03:04:05Z\",\"start\":{\"ranks\":2,\"batch_size\":8}}\n{\"step\":100,\"bottleneck\":{\"bound\":\"data-bound\",\"rank\":1}}\n" +
		"{\"step\":1,\"length\":{\"steps\":300}}\n{\"step\":50,\"evaluation\":{\"loss\":null,\"metrics\":{\"top1\":0.5}}}\n{\"step\":60,\"checkpoint\":{\"seconds\":1}}"))
	f.Add([]byte(`{"step":9223372036854775807,"bottleneck":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h := happened{}
		for _, line := range bytes.Split(text, []byte("\n")) {
			h.add(line, 0)
		}
		if h.length < 0 || h.length > runtime.MostStep || len(h.starts.list) > mostEvents ||
			len(h.verdicts.list) > mostAlerts {
			t.Errorf("%d steps, %d starts, %d verdicts", h.length, len(h.starts.list), len(h.verdicts.list))
		}
		for _, v := range h.verdicts.list {
			if v.To < 0 || v.To > runtime.MostStep {
				t.Errorf("verdict %+v", v)
			}
		}
		runtime.SegmentAt(h.starts.list, 5)
	})
}

func FuzzCommunication(f *testing.F) {
	f.Add([]byte(`{"step":100,"steps":100,"step_seconds":0.1,"ranks":[{"compute_seconds":0.1,"links":[{"kind":"network","name":"eth0","limit":1e9,"sent":1e6}]}],"buckets":[{"name":"b0","bytes":100}]}`))
	f.Add([]byte(`{"step":9223372036854775807,"ranks":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := communicated{}
		for _, line := range bytes.Split(text, []byte("\n")) {
			c.add(line, 0)
		}
		if c.last != nil && (len(c.last.Ranks) > mostRankRows || len(c.last.Links) > mostLinkRows ||
			c.last.Step > runtime.MostStep) {
			t.Errorf("got %d ranks and %d links at step %d", len(c.last.Ranks), len(c.last.Links), c.last.Step)
		}
		if _, err := json.Marshal(c.last); err != nil {
			t.Error(err)
		}
	})
}

func FuzzCurves(f *testing.F) {
	f.Add([]byte("rank,samples,seconds\n0,1,0.1\n0,2,0.2\n1,1,NaN\n-1,1e300,-1\n"))
	f.Add([]byte("a\n\"b"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := json.Marshal(parseCurves(text)); err != nil {
			t.Error(err)
		}
	})
}

// The settings of a run are untrusted. The memory for them must not exceed a multiple of their size.
func FuzzSettings(f *testing.F) {
	f.Add([]byte("[train]\nsteps = 10\n[model]\nchannels = [4]\nname = \"a\"\n"))
	f.Add([]byte("a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t = 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		flat, err := Flat(text)
		if err != nil {
			return
		}
		bytes := 0
		for key := range flat {
			if bytes += len(key); strings.Count(key, ".") > len(text) {
				t.Errorf("%q: got key %q", text, key)
			}
		}
		if bytes > (mostTables+2)*len(text)+len(text) {
			t.Errorf("%q: keys of %d bytes", text, bytes)
		}
	})
}

// Without a limit of depth, a file of 120 KB in this format needs 5 GB of memory.
func TestDeepSettingsAreRefused(t *testing.T) {
	if _, err := Flat([]byte(strings.Repeat("a.", 60_000) + "a = 1\n")); err == nil ||
		!strings.Contains(err.Error(), "tables within each other") {
		t.Errorf("got %v, want an error about tables within each other", err)
	}
}
