// Package dashboard serves a web page about training runs. The server reads the folders of runs through package
// profiler/runs. It does not communicate with training processes, and never writes into the folder of a run.
//
//	server, err := dashboard.New(dashboard.Options{Folder: folder, Token: token, Loopback: true})
//	err = server.Serve(ctx, listener)   // until ctx is canceled
//
// # Interface
//
//	GET  /                          the page; its address contains the whole state: runs, view, range, fields of the charts
//	GET  /api/runs                  list of all runs
//	GET  /api/runs/NAME             state of a run (runs.View); ?once: the client does not follow the run
//	GET  /api/runs/NAME/figures     figures by step: columns=loss,own&from=1&to=0&points=800&ranks=0,3
//	GET  /api/runs/NAME/config      settings, as text
//	POST /api/compare               the tables of analyze --compare for the runs in the body, as a JSON list of names
//	GET  /api/stream?run=A&run=B    server-sent events: the version of each run after a change, or a refusal
//	POST /login                     exchanges the token for a cookie
//
// For each run that a client watches, a follower reads the files of the run. Clients that send the same request about
// the same version of a run share one response, so a further client costs little. The server follows at most 8 runs at
// a time. While clients watch 8 runs, a request for another run gets status 503. A stream of another run gets a
// `refused` event, and the server tries again every 5 s to follow the run. Without a follower, requests for figures and
// settings read the files once, for two runs at a time. A stream of a run that does not exist waits until this run
// exists.
//
// Each time it reads the files, the follower checks that the folder of the run still exists and is the same one.
// Otherwise it closes the files and ends. Streams then get a `refused` event, and a new run of this name gets a new
// follower.
//
// With HTTP/1.1, a browser opens at most six connections to a server. All pages in a browser therefore share one
// stream, which a shared worker reads (ui/src/hub.ts).
//
// # Security
//
// The server only reads. Without a token, it serves only requests from this machine. It refuses a request in these
// cases:
//
//   - The Host header is not a name of the server (DNS rebinding).
//   - The Origin header names another site: neither the host of the Host header nor one of Options.Hosts.
//   - The path contains an escaped character.
//   - A header is too long.
//
// The page loads nothing from other servers and contains no inline script. Browsers enforce this
// (Content-Security-Policy). Only certain characters are allowed in names of runs, and files are opened through
// os.Root. The server reads files outside the folder of runs in one case only: if experiment.log_dir in a run's
// settings names another folder, it reads the records there. The server disconnects clients that do not read its
// responses.
//
// # Proxies
//
// All addresses in the page, in redirects and in scripts are relative, so a proxy may serve the page below a path. If
// the proxy leaves its path in the requests, Options.BasePath removes it. The server reads no X-Forwarded header.
//
// # User interface
//
// The sources are in ui (TypeScript). The bundle in ui/bundle is part of the repository, so a build needs no Node.
// scripts/dashboard_ui.sh rebuilds the bundle. With --check, it compares the bundle with the sources.
package dashboard
