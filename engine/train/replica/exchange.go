package replica

import (
	"encoding/binary"

	"github.com/hetero-train/hetero-train/engine/collective"
)

// Exchange transfers values between the ranks in each step, directly after the gradients.
type Exchange interface {
	// Send writes this rank's part, and returns the operation that exchanges the parts. The argument out has the
	// results that are known before the gradients of all ranks have arrived.
	Send(out StepResult) (collective.Op, error)
	// Received reads the parts of all ranks. It returns the number of labelled targets of the global batch.
	Received() (count int, err error)
}

// counting is an Exchange of the number of labelled targets only. A replica uses it if its caller provides no Exchange.
type counting Replica

// countBytes is the size of a target count in an exchange.
const countBytes = 8

// Send implements Exchange.
func (c *counting) Send(out StepResult) (collective.Op, error) {
	binary.LittleEndian.PutUint64(c.counts.Own(), uint64(out.Count))
	return c.counts.Op(), nil
}

// Received implements Exchange.
func (c *counting) Received() (count int, err error) {
	for rows := c.counts.All(); len(rows) > 0; rows = rows[countBytes:] {
		count += int(binary.LittleEndian.Uint64(rows))
	}
	return count, nil
}
