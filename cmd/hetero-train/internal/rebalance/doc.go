// Package rebalance divides the batch among ranks while they train.
//
// A [Balancer] is the train.Splitter of a run. Every rank has the same policy and receives the same reports, so all
// ranks reach the same decision without a message. In an interleaved comparison, several policies alternate in one run.
package rebalance
