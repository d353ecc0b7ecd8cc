// Package dashboard serves a web page about training runs. The server reads the folders of runs through package
// profiler/runs; it never talks to a training process and never writes.
//
//	server, err := dashboard.New(dashboard.Options{Folder: folder, Token: token, Loopback: true})
//	err = server.Serve(ctx, listener)   // until ctx is canceled
//
// # Interface
//
//	GET  /                          the page; its address holds run, view and range of steps
//	GET  /api/runs                  list of runs
//	GET  /api/runs/NAME             a run without figures over steps (runs.View)
//	GET  /api/runs/NAME/figures     figures over steps: columns=loss,own&from=1&to=0&points=800&ranks=0,3
//	GET  /api/runs/NAME/config      settings, as text
//	GET  /api/stream?run=NAME       server-sent events: the version of the run after each change
//	POST /login                     exchanges the token for a cookie
//
// A follower reads each run that a client watches, and only these. Clients that ask the same question about the same
// version of a run share one answer, so a client costs little.
//
// # Security
//
// The page only reads. Without a token, the server answers requests from this machine alone. A request is refused if
// its Host header is not a name of the server (DNS rebinding), if its Origin is another site, if its path has an
// escaped character, or if a header is too long. The page loads nothing from other servers and has no inline script;
// the browser enforces this (Content-Security-Policy). The names of runs have a fixed alphabet, and files are opened
// through os.Root. Clients that do not read are disconnected.
//
// # User interface
//
// The sources are in ui (TypeScript). The bundle in ui/bundle is committed, so a build needs no Node.
// scripts/dashboard_ui.sh rebuilds it, and its option --check compares it with the sources.
package dashboard
