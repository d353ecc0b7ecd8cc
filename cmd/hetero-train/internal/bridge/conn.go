package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrEnded is the error of a run whose program has ended without sending an [End].
var ErrEnded = errors.New("the PyTorch script has ended without balancer.close(): it was killed, or has exited")

// Welcome answers a [Hello].
type Welcome struct {
	Type     string `json:"type"` // welcome
	Protocol int    `json:"protocol"`
	Program  string `json:"program"`  // version of hetero-train
	Measures bool   `json:"measures"` // the shares depend on the measured times of the ranks
}

// Gather asks the program to exchange one value of each rank. The reply is a [Gathered].
type Gather struct {
	Type  string          `json:"type"` // gather
	What  string          `json:"what"`
	Value json.RawMessage `json:"value"`
}

// Started answers a [Start]. After this message, the bridge accepts steps.
type Started struct {
	Type     string `json:"type"`     // started
	Shares   []int  `json:"shares"`   // shares of a micro-batch, by rank
	Interval int    `json:"interval"` // steps between two decisions
	Opening  int    `json:"opening"`  // steps before the first decision; 0: the shares never change
	// absolute path of the run's folder; "" on all ranks except rank 0
	Folder    string   `json:"folder"`
	Cached    bool     `json:"cached"`            // the cache contains a step-time curve of this rank
	Telemetry []Number `json:"telemetry"`         // sensor values of this rank
	Notes     []string `json:"notes,omitempty"`   // sentences that a reader needs to interpret the numbers
	Policy    string   `json:"policy"`            // policy in use
	Metrics   string   `json:"metrics,omitempty"` // address of the metrics for Prometheus
}

// Decided answers [Steps].
type Decided struct {
	Type          string   `json:"type"` // decided
	Step          int64    `json:"step"`
	Shares        []int    `json:"shares"` // new shares of a micro-batch, by rank; null: no change
	Reason        string   `json:"reason,omitempty"`
	ShareOfOracle Number   `json:"share_of_oracle"` // best / actual step time at the latest decision; null: unknown
	Telemetry     []Number `json:"telemetry"`       // sensor values of this rank
}

// Curve answers a [Lookup].
type Curve struct {
	Type   string  `json:"type"`   // curve
	Points []Point `json:"points"` // cached curve; empty: none
}

// Done answers [Evaluation] and [Saved].
type Done struct {
	Type string `json:"type"` // done
}

// Ended answers an [End]. It is the last message.
type Ended struct {
	Type             string `json:"type"` // ended
	Steps            int64  `json:"steps"`
	SamplesPerSecond Number `json:"samples_per_second"`
	ShareOfOracle    Number `json:"share_of_oracle"`
	Folder           string `json:"folder"`
}

// Failed reports an error. It is the last message.
type Failed struct {
	Type    string `json:"type"` // error
	Code    int    `json:"code"` // exit code of the process
	Message string `json:"message"`
}

// Conn is a connection to the program that computes. It is not safe for concurrent use.
type Conn struct {
	out   io.Writer
	lines chan line
}

type line struct {
	text []byte
	err  error
}

// Open returns a connection that reads from in and writes to out. It reads ahead, so that it detects a closed input.
func Open(in io.Reader, out io.Writer) *Conn {
	c := &Conn{out: out, lines: make(chan line)}
	go func() {
		r := bufio.NewReaderSize(in, 1<<16)
		for {
			text, err := readLine(r)
			c.lines <- line{text, err}
			if err != nil {
				close(c.lines)
				return
			}
		}
	}()
	return c
}

// readLine reads a line of at most MostBytes, without its end. A last line without an end is incomplete, so it counts
// as the end of the stream.
func readLine(r *bufio.Reader) ([]byte, error) {
	var all []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(all)+len(part) > MostBytes {
			return nil, &Fault{fmt.Sprintf("got a line of more than %d bytes", MostBytes)}
		}
		all = append(all, part...)
		if err == nil {
			return bytes.TrimSuffix(all, []byte("\n")), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// Next returns the next message. It returns io.EOF if the other side has closed the stream.
func (c *Conn) Next(ctx context.Context) (Message, error) {
	select {
	case l, open := <-c.lines:
		switch {
		case !open:
			return nil, io.EOF
		case l.err != nil:
			return nil, l.err
		}
		return Parse(l.text)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Send writes a message.
func (c *Conn) Send(m any) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = c.out.Write(append(text, '\n'))
	return err
}

// OrderError reports a valid message that the bridge did not expect at this time.
type OrderError struct{ Got, Want Message }

func (e *OrderError) Error() string {
	return fmt.Sprintf("bridge: got a message %s, want %s", typeOf(e.Got), typeOf(e.Want))
}

// typeOf returns the name of a message's type.
func typeOf(m Message) string {
	for name, create := range kinds {
		if fmt.Sprintf("%T", create()) == fmt.Sprintf("%T", m) {
			return name
		}
	}
	return fmt.Sprintf("%T", m)
}

// Expect returns the next message, which must have type M.
func Expect[M Message](ctx context.Context, c *Conn) (M, error) {
	var want M
	m, err := c.Next(ctx)
	if err != nil {
		return want, err
	}
	got, ok := m.(M)
	if !ok {
		return want, &OrderError{Got: m, Want: want}
	}
	return got, nil
}

// Exchange sends a value of this rank, and returns the values of all ranks from the other side. The parameter ranks is
// the number of values in a valid reply.
func (c *Conn) Exchange(ctx context.Context, what string, own []byte, ranks int) ([][]byte, error) {
	if len(own) == 0 {
		own = []byte("null")
	}
	if err := c.Send(Gather{Type: "gather", What: what, Value: own}); err != nil {
		return nil, err
	}
	g, err := Expect[*Gathered](ctx, c)
	if err != nil {
		return nil, err
	}
	if len(g.Values) != ranks {
		return nil, &Fault{fmt.Sprintf("%s: got the values of %d ranks, want %d", what, len(g.Values), ranks)}
	}
	values := make([][]byte, ranks)
	for rank, v := range g.Values {
		values[rank] = v
	}
	return values, nil
}
