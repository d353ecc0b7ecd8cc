package show

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// Figure formats a number with format. It returns a dash for NaN and infinite numbers.
func Figure[F ~float64](format string, value F) string {
	v := float64(value)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

// JSON prints v on one line.
func JSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// Bytes formats a size in the largest decimal unit, up to GB, that is not larger than the size.
func Bytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.2f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}

// Count formats a number with a noun whose plural ends in s: 1 GPU, 2 GPUs.
func Count[N ~int | ~int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// NaN is the value of an unknown number.
var NaN = math.NaN()

// PerSecond returns n per second, or 0 if d is 0.
func PerSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// GiB converts bytes to GiB.
func GiB(bytes int64) float64 { return float64(bytes) / (1 << 30) }

// Number converts a value for a JSON record. NaN and infinite numbers become null, as in all files of a run.
func Number[F ~float64](value F) any {
	if v := float64(value); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return v
	}
	return nil
}

// Duration formats a duration with three digits and readable units: 24.8 ms, 3.21 s, 1m03s, 2h05m, 3d04h.
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(-max(d, -math.MaxInt64)) // the smallest duration has no positive counterpart
	}
	digits := func(value float64, unit string) string {
		decimals := 2
		for limit := 9.995; decimals > 0 && value >= limit; limit = 99.95 {
			decimals--
		}
		return strconv.FormatFloat(value, 'f', decimals, 64) + " " + unit
	}
	minutes := func(d time.Duration) int64 { return int64(d.Round(time.Minute) / time.Minute) }
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < 999500*time.Nanosecond:
		return digits(float64(d)/1e3, "µs")
	case d < 999500*time.Microsecond:
		return digits(float64(d)/1e6, "ms")
	case d < 59950*time.Millisecond:
		return digits(d.Seconds(), "s")
	case d < time.Hour-500*time.Millisecond:
		s := int64(d.Round(time.Second) / time.Second)
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case d < 24*time.Hour-30*time.Second:
		m := minutes(d)
		return fmt.Sprintf("%dh%02dm", m/60, m%60)
	}
	h := int64(d.Round(time.Hour) / time.Hour)
	return fmt.Sprintf("%dd%02dh", h/24, h%24)
}

// Seconds converts a time in seconds to a duration. A time that is too long becomes the longest duration, and NaN
// becomes 0.
func Seconds(s float64) time.Duration {
	if math.IsNaN(s) {
		return 0
	}
	const most = float64(math.MaxInt64)
	return time.Duration(max(-most, min(most-1024, s*float64(time.Second)))) // most has rounded up to 2^63
}

// MiB converts bytes to MiB.
func MiB(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// Verdict describes the balancer's verdict on a rank. In the records, the verdict "sick" means that a rank is slower
// than its step-time curve.
func Verdict(verdict, cause string) string {
	if verdict == "sick" {
		return "slower than usual, cause: " + cause
	}
	return verdict
}

func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Classes returns ", 10 classes", or "" for a model without classes.
func Classes(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d classes", n)
}
