// Package rebalance divides the batch among ranks while they train.
//
// A [Balancer] is the train.Splitter of a run. Every rank has the same policy and the same reports, so decisions need
// no message. In an interleaved comparison, several policies alternate in one run.
package rebalance
