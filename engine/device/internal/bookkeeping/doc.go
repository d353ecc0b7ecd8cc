// Package bookkeeping is the common part of devices written in Go. A [Device] counts memory, checks compile requests,
// binds programs, owns events and runs streams. A concrete device embeds a Device and adds Info and the work of its
// streams ([Work]).
//
// The package is strict. It refuses all arguments that violate the contract. It also refuses operands that overlap
// without permission, kernels that are bound to host memory, and closing a device while memory is allocated. Every
// layout is Plain.
package bookkeeping
