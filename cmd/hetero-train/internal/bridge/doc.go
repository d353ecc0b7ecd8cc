// Package bridge is the protocol between hetero-train and a program that computes the steps of a run, such as PyTorch.
//
// Each rank of that program starts a process "hetero-train bridge", and writes messages to its standard input. The
// process answers on its standard output. A message is one JSON object on one line, whose key "type" names the message.
// docs/pytorch.md describes all messages in their order. [Version] is the version of the protocol; each side refuses
// another version.
//
//	conn := bridge.Open(os.Stdin, os.Stdout)
//	hello, err := bridge.Expect[*bridge.Hello](ctx, conn)
//	err = conn.Send(bridge.Welcome{...})
//
// The package only reads and writes messages. It opens no files and no connections, because the other program exchanges
// the values of the ranks.
//
// # Errors
//
//	*Fault        a line that is not a message of this protocol, with the reason
//	io.EOF        the other side has closed the stream
//	*OrderError   a valid message at the wrong time
package bridge
