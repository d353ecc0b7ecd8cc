// Package rebalance divides the batch among ranks during training.
//
// A [Balancer] is the train.Splitter of a run. Every rank has the same policy and receives the same reports, so all
// ranks make the same decision without a message. In an interleaved comparison, several policies alternate within one
// run.
package rebalance
