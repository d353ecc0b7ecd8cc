package analysis

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

// noValue replaces an unknown value in tables.
const noValue = "-"

// mostPlain is the smallest number that Digits formats with an exponent, because a reader cannot count its zeros at
// a glance.
const mostPlain = 1e15

// Digits formats a number with 4 significant digits: 0.01230, 1.230, 123.0, 12300. Numbers from 0.0001 to below
// mostPlain have no exponent. It returns a dash for a number that is unknown or infinite.
func Digits[F ~float64](number F) string {
	v := float64(number)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return noValue
	}
	if v == 0 {
		return "0"
	}
	text := strings.TrimSuffix(fmt.Sprintf("%#.4g", v), ".")
	rounded, err := strconv.ParseFloat(text, 64)
	if size := math.Abs(rounded); err == nil && size >= 1e4 && size < mostPlain {
		return strconv.FormatFloat(rounded, 'f', -1, 64)
	}
	return text
}

// asDigits is the format that makes the function value use Digits.
const asDigits = ""

// value formats v times scale.
func value(v, scale float64, format, unit string) string {
	if math.IsNaN(v) {
		return noValue
	}
	if format == asDigits {
		return Digits(v*scale) + unit
	}
	return fmt.Sprintf(format, v*scale) + unit
}

// interval formats a value with its interval.
func interval(e Estimate, scale float64, format, unit string) string {
	if !e.Known() {
		return noValue
	}
	text := value(e.Value, scale, format, unit)
	if e.Low == e.High {
		return text
	}
	return fmt.Sprintf("%s (%s–%s)", text, value(e.Low, scale, format, ""), value(e.High, scale, format, ""))
}

// resultColumns are the columns of the main table.
var resultColumns = []string{"policy", "runs", "throughput, samples/s", "speed-up", "utilization", "scaling efficiency",
	"load imbalance", "waiting", "straggler impact", "mean fraction of oracle", "time to loss"}

// resultRows returns one row per policy.
func (c *Comparison) resultRows() [][]string {
	var rows [][]string
	for _, p := range c.Policies {
		rows = append(rows, []string{
			p.Policy, fmt.Sprint(len(p.Runs)), interval(p.Throughput, 1, asDigits, ""),
			interval(p.Speedup, 1, "%.2f", "x"),
			interval(p.Utilization, 1, "%.0f", " %"), interval(p.Efficiency, 1, "%.2f", ""),
			interval(p.Imbalance, 100, "%.1f", " %"),
			interval(p.Waiting, 100, "%.1f", " %"), stragglerImpact(p.Waiting), interval(p.Oracle, 100, "%.1f", " %"),
			value(average(p.SecondsTo), 1, asDigits, " s"),
		})
	}
	return rows
}

// average returns the mean of numbers, or NaN if there are none.
func average(numbers []float64) float64 {
	sum := 0.0
	for _, n := range numbers {
		sum += n
	}
	return sum / float64(len(numbers))
}

// Print writes the comparisons as tables for a terminal.
func (s *Study) Print(w io.Writer) error {
	for _, c := range s.Comparisons {
		fmt.Fprintf(w, "%s on %s, scenario %s, ranks %d, global batch %d\n", c.Model, c.Dataset, c.Scenario, c.Ranks,
			c.BatchSize)
		rows, columns := c.resultRows(), slices.Clone(resultColumns)
		columns, rows = withoutEmpty(columns, rows)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{columns}, rows...) {
			fmt.Fprintf(table, "  %s\n", strings.Join(row, "\t"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		if c.expects() {
			fmt.Fprintln(w, "\n  The five figures of each policy, measured and expected for four unequal workers (x: ratio to none):")
			columns, rows := c.fiveFigures()
			for _, row := range append([][]string{columns}, rows...) {
				fmt.Fprintf(table, "  %s\n", strings.Join(row, "\t"))
			}
			if err := table.Flush(); err != nil {
				return err
			}
		}
		for _, note := range c.Notes {
			fmt.Fprintf(w, "  NOTE %s\n", note)
		}
		fmt.Fprintln(w)
	}
	return nil
}

// withoutEmpty removes columns without known values.
func withoutEmpty(columns []string, rows [][]string) ([]string, [][]string) {
	var keptColumns []string
	kept := make([][]string, len(rows))
	for i, name := range columns {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[i] != noValue }) {
			continue
		}
		keptColumns = append(keptColumns, name)
		for j, row := range rows {
			kept[j] = append(kept[j], row[i])
		}
	}
	return keptColumns, kept
}

// markdown formats a table.
func markdown(columns []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		for _, cell := range cells {
			b.WriteString("| " + strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell) + " ")
		}
		b.WriteString("|\n")
	}
	line(columns)
	b.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// mostCell is the largest number of characters of a text in a table.
const mostCell = 48

// plain prepares a text from a file for a table. It removes control characters, which a terminal could interpret. It
// shortens a long text in the middle, because the names of a sweep often differ only at their ends.
func plain(text string) string {
	runes := []rune(printable(text))
	if len(runes) > mostCell {
		const end = mostCell / 3
		return string(runes[:mostCell-1-end]) + "…" + string(runes[len(runes)-end:])
	}
	return string(runes)
}

// printable returns a text without control characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
