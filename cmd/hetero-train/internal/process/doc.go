// Package process joins this process to the other ranks and supervises the ranks of this machine.
//
// [Place] determines the rank of this process. [Supervise] starts ranks as child processes. A [Team] is a rank's
// membership in the process group; a nil Team is a single-rank run. When ranks wait for each other, the watchdog
// reports which operation each rank has reached.
package process
