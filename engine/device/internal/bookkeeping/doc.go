// Package bookkeeping is what the devices written in Go share: everything about a device but the work. A [Device] accounts for
// memory, checks what is compiled, binds programs, owns events and runs streams; whoever embeds it adds Info and what the work of a stream is ([Work]).
//
// It is strict. Beyond the contract's wrong arguments these are errors, too: operands that overlap without leave,
// kernels bound to host memory, and closing a device while memory is out. Every layout is Plain.
package bookkeeping
