//go:build cgo && linux

package hardware_test

import (
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/hardware/hardwaretest"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// linksOf returns the links of a machine with one GPU.
func linksOf(t *testing.T, card *hardwaretest.Card, each bool) *hardware.Links {
	t.Helper()
	gpus := hardware.OpenNVML(hardwaretest.Machine(card))
	source, err := gpus.LinkSource(0, each)
	if err != nil {
		t.Fatal(err)
	}
	l := hardware.NewLinks(source)
	t.Cleanup(func() { l.Close(); gpus.Close() })
	return l
}

// measured returns the newest traffic. It first gives the links time to measure.
func measured(l *hardware.Links) []telemetry.Traffic {
	got := make([]telemetry.Traffic, len(l.All()))
	l.Sample(got)
	synctest.Wait()
	l.Sample(got)
	return got
}

func TestLinksOfCards(t *testing.T) {
	const counted, sampled = telemetry.BasisCounter, telemetry.BasisSample
	narrow := hardwaretest.RTX3060()
	narrow.NowWidth = 4
	unknown := hardwaretest.H100()
	unknown.LinkMBytes, unknown.NVLinks = 0, 2
	pair := hardwaretest.H100()
	pair.NVLinks = 2
	for _, c := range []struct {
		name string
		card *hardwaretest.Card
		each bool
		want []telemetry.Link
	}{
		{"no NVLink", hardwaretest.GTX1650(), false,
			[]telemetry.Link{{Kind: "pcie", Name: "pcie", Limit: 16 * 8e9 / 8 * 128 / 130, Basis: sampled}}},
		{"fewer lanes than possible", narrow, false,
			[]telemetry.Link{{Kind: "pcie", Name: "pcie", Limit: 4 * 16e9 / 8 * 128 / 130, Basis: sampled}}},
		{"18 connections", hardwaretest.H100(), false,
			[]telemetry.Link{{Kind: "pcie", Name: "pcie", Limit: 16 * 32e9 / 8 * 128 / 130, Basis: sampled},
				{Kind: "nvlink", Name: "nvlink", Limit: 18 * 26562e6, Basis: counted}}},
		{
			"each connection", pair, true,
			[]telemetry.Link{{Kind: "pcie", Name: "pcie", Limit: 16 * 32e9 / 8 * 128 / 130, Basis: sampled},
				{Kind: "nvlink", Name: "nvlink0", Limit: 26562e6, Basis: counted},
				{Kind: "nvlink", Name: "nvlink1", Limit: 26562e6, Basis: counted}}},
		{"unknown speed", unknown, false,
			[]telemetry.Link{{Kind: "pcie", Name: "pcie", Limit: 16 * 32e9 / 8 * 128 / 130, Basis: sampled},
				{Kind: "nvlink", Name: "nvlink", Basis: counted}}},
	} {
		got := linksOf(t, c.card, c.each).All()
		for i := range got {
			got[i].Limit, c.want[i].Limit = math.Round(got[i].Limit), math.Round(c.want[i].Limit)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	gpus := hardware.OpenNVML(hardwaretest.Machine(hardwaretest.H100()))
	defer gpus.Close()
	if _, err := gpus.LinkSource(3, false); err == nil {
		t.Error("GPU 3 of 1: no error")
	}
}

func TestTrafficOfCards(t *testing.T) {
	for _, five := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			card := hardwaretest.H100()
			card.NVLink5, card.NVLinkBytes, card.PCIeKBytes = five, [2]uint64{1 << 40, 1 << 41}, [2]uint32{2000, 5000}
			l := linksOf(t, card, false)
			first := measured(l)
			if first[0].Sent != 2e6 || first[0].Received != 5e6 || !math.IsNaN(first[0].SentBytes) {
				t.Errorf("PCIe: got %+v, want 2 and 5 MB/s without a count of bytes", first[0])
			}
			if !math.IsNaN(first[1].Sent) || first[1].SentBytes != 0 {
				t.Errorf("NVLink, first measurement: got %+v, want an unknown rate", first[1])
			}
			card.Set(func(c *hardwaretest.Card) { c.NVLinkBytes[0] += 1 << 30; c.NVLinkBytes[1] += 1 << 20 })
			if again := measured(l); again[1].SentBytes != 0 {
				t.Errorf("at once: got %+v, want the measurement of before", again[1])
			}
			time.Sleep(2 * time.Second)
			got := measured(l)
			if want := 18. * (1 << 30) / 2; got[1].Sent != want || got[1].Received != 18*(1<<20)/2 ||
				got[1].SentBytes != 2*want {
				t.Errorf("NVLink: got %+v, want %v bytes/s sent", got[1], want)
			}
			s := telemetry.Unknown()
			telemetry.PutTraffic(&s, l.All(), got)
			if s[telemetry.PCIeReceived] != 5e6 || s[telemetry.NVLinkSent] != got[1].Sent ||
				!math.IsNaN(s[telemetry.NetworkSent]) {
				t.Errorf("sensors: got %+v", s)
			}
			card.Set(func(c *hardwaretest.Card) { c.Lost = true })
			time.Sleep(time.Second)
			for i, v := range measured(l) {
				if !math.IsNaN(v.Sent) || !math.IsNaN(v.Received) || !math.IsNaN(v.SentBytes) {
					t.Errorf("a lost GPU: link %d: got %+v, want nothing known", i, v)
				}
			}
		})
	}
}

func TestEachConnectionHasItsOwnTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := linksOf(t, hardwaretest.H100(), true)
		measured(l)
		time.Sleep(time.Second)
		got := measured(l)
		if len(got) != 19 || got[0].Sent != 0 || got[18].Sent != 0 || got[18].SentBytes != 0 {
			t.Errorf("got %+v, want PCIe and 18 connections without traffic", got)
		}
	})
}

func TestACardThatDoesNotMeasureItsLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, change := range []func(*hardwaretest.Card){func(c *hardwaretest.Card) { c.NoTraffic = true },
			func(c *hardwaretest.Card) { c.OldDriver, c.NoTraffic = true, true }} {
			card := hardwaretest.H100()
			change(card)
			l := linksOf(t, card, false)
			measured(l)
			time.Sleep(time.Second)
			for i, v := range measured(l) {
				if !math.IsNaN(v.Sent) || !math.IsNaN(v.Received) || !math.IsNaN(v.SentBytes) {
					t.Errorf("link %d: got %+v, want nothing known", i, v)
				}
			}
		}
	})
}

// slowSource is a LinkSource whose measurement takes a second.
type slowSource struct{ begun atomic.Int32 }

func (s *slowSource) Links() []telemetry.Link { return []telemetry.Link{{Name: "slow"}} }
func (s *slowSource) Sample(into []telemetry.Traffic) {
	number := s.begun.Add(1)
	time.Sleep(time.Second)
	into[0] = telemetry.Traffic{Sent: float64(number)}
}

func TestLinksNeverWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(slowSource)
		l := hardware.NewLinks(source)
		got := make([]telemetry.Traffic, 1)
		begun := time.Now()
		for range 100 {
			l.Sample(got)
		}
		if took := time.Since(begun); took != 0 || !math.IsNaN(got[0].Sent) {
			t.Errorf("got %+v after %v, want unknown values at once", got, took)
		}
		time.Sleep(1500 * time.Millisecond)
		if l.Sample(got); got[0].Sent != 1 || source.begun.Load() != 1 {
			t.Errorf("got %+v after %d measurements, want those of the first", got, source.begun.Load())
		}
		synctest.Wait()
		l.Close() // waits until the second measurement ends
		l.Sample(got)
		if time.Sleep(time.Minute); got[0].Sent != 2 || source.begun.Load() != 2 {
			t.Errorf("after Close: got %+v, %d measurements, want no further one", got, source.begun.Load())
		}
	})
}
