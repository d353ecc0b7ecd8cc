// Package process joins this process to the other ranks and supervises the ranks of this machine.
//
// [Place] tells which rank this is. [Supervise] starts ranks as child processes. A [Team] is a rank's membership;
// a nil Team is a run of one rank. The watchdog reports where ranks wait for each other.
package process
