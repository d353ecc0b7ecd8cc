// Package ranktest starts processes of a test binary as ranks that meet at an address of this machine. Only tests
// import it.
//
//	func TestMain(m *testing.M) { ranktest.Main(m, variable, role.run) } // run calls Join, and prints lines
//
//	ranks := ranktest.Start(t, variable, size, func(rank int, meeting string) any { return role{rank, meeting} })
//	ranks.Expect(0, "joined")
//	ranks.Signal(1, syscall.SIGKILL)
//
// The ranks end with the test.
package ranktest
