// Package process joins this process to the other ranks and supervises the ranks of this machine.
//
// [Assign] determines the rank of this process. [Supervise] starts ranks as child processes. A [Team] is the membership
// of a rank in the process group; in a run of one rank, the Team is nil. If ranks wait too long for each other,
// [Team.Watch] logs the operation that each rank has reached.
package process
