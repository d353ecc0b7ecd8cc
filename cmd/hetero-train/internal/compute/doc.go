// Package compute is a rank with its device: which one it opens, in which precision it computes, what it measures of itself.
//
// [Rank] embeds the session. A nil Team means one rank. [OnRanks] runs a function on every rank of a command line.
package compute
