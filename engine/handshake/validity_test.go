package handshake

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

func TestTheErrorOfACertificateHasBothDates(t *testing.T) {
	at := func(day int) time.Time { return time.Date(2026, 11, day, 12, 0, 0, 0, time.UTC) }
	c := &x509.Certificate{NotBefore: at(10), NotAfter: at(20)}
	for _, test := range []struct {
		now  time.Time
		want string // "": valid
	}{
		{at(9), "is not valid yet: it is valid from 2026-11-10 12:00 UTC to 2026-11-20 12:00 UTC, and the clock of this machine shows 2026-11-09 12:00 UTC"},
		{at(10), ""}, {at(20), ""},
		{at(21), "has expired: it was valid from 2026-11-10 12:00 UTC to 2026-11-20 12:00 UTC, and the clock of this machine shows 2026-11-21 12:00 UTC"},
	} {
		err := ValidAt(c, test.now)
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %q", test.now, err, test.want)
		}
	}
}
