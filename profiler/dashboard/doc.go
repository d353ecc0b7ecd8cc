// Package dashboard serves a web page about training runs. The server reads the folders of runs through package
// profiler/runs. It does not communicate with training processes, and never writes into the folder of a run.
//
//	server, err := dashboard.New(dashboard.Options{Folder: folder, Token: token, Loopback: true})
//	err = server.Serve(ctx, listener)   // until ctx is canceled
//
// # Interface
//
//	GET  /                          the page; its address contains the whole state: runs, view, range, fields of the charts
//	GET  /api/runs                  list of runs
//	GET  /api/runs/NAME             a run without figures over steps (runs.View); ?once: the client does not follow it
//	GET  /api/runs/NAME/figures     figures over steps: columns=loss,own&from=1&to=0&points=800&ranks=0,3
//	GET  /api/runs/NAME/config      settings, as text
//	POST /api/compare               the tables of analyze --compare for the runs in the body, as a JSON list of names
//	GET  /api/stream?run=A&run=B    server-sent events: the version of each run after a change, or a refusal
//	POST /login                     exchanges the token for a cookie
//
// For each run that a client watches, a follower reads the files of the run. Clients that send the same request about
// the same version of a run share one response, so a further client costs little. The server follows at most 8 runs at
// a time. While clients watch 8 runs, a request for another run gets status 503, and a stream gets a `refused` event
// and tries again every 5 s. Requests for figures and settings read the files once, two runs at a time. A stream of a
// run that does not exist also waits for this run.
//
// At each look at the files, the follower checks that the folder of the run still exists and is the same one. Otherwise
// it ends and closes the files, streams get a `refused` event, and a new run of this name gets a new follower.
//
// A browser opens at most six connections to a server with HTTP/1.1. All pages of a browser therefore share one stream,
// which a shared worker reads (ui/src/hub.ts).
//
// # Security
//
// The server only reads. Without a token, it serves only requests from this machine. It refuses a request in these
// cases:
//
//   - The Host header is not a name of the server (DNS rebinding).
//   - The Origin is another site: neither the host of the Host header nor one of Options.Hosts.
//   - The path contains an escaped character.
//   - A header is too long.
//
// The page loads nothing from other servers and contains no inline script. Browsers enforce this
// (Content-Security-Policy). Names of runs have a fixed alphabet, and files are opened through os.Root. Only the key
// experiment.log_dir of a run's settings leads out of the folder of runs, to the files of records in the folder that it
// names. The server disconnects clients that do not read its responses.
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
