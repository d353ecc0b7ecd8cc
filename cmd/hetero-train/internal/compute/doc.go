// Package compute is a rank with its device: the choice of the device, its precision, and the measurements of the rank.
//
// [Rank] embeds the session. A nil Team means one rank. [OnRanks] runs a function on every rank of a command line.
package compute
