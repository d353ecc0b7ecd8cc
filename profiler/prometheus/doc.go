// Package prometheus serves the metrics of a run to Prometheus.
//
//	m := prometheus.New(prometheus.Run{Name: "resnet50", Ranks: []prometheus.Rank{{Number: 0}, {Number: 1, GPU: true}}})
//	server, err := prometheus.Listen(prometheus.ServerOptions{Address: "127.0.0.1:9464", Metrics: m})
//	m.Update(func(s *prometheus.State) { s.Steps++; s.StepSeconds.Add(0.12) }) // the training goroutine, once per step
//	err = server.Close()
//
// # Metrics
//
// Names follow the conventions of Prometheus: prefix hetero_train, base units, suffix _total for counters. Counters
// start at 0 in each process. The sensors come from the table of package telemetry: a sensor named "memory" in percent
// is hetero_train_device_memory_ratio. For a GPU, the package also exports the fields of NVIDIA's DCGM that
// telemetry.Declaration.DCGM names, in the units of DCGM.
//
// # Training does not wait
//
// Update changes values that belong to the training goroutine, and then copies them for scrapers. If a scraper is
// reading the copy, Update leaves the copy as it is, and the next Update renews it. Memory is bounded: a server has at
// most mostConnections connections and renders mostScrapes responses at a time. The server disconnects slow clients.
//
// # Text format
//
// The package writes Prometheus' text format itself. The client library of Prometheus would add eight modules and make
// the program 4 MB larger. It also needs a newer golang.org/x/text, and the tokenizers of package engine/data/tokenizer
// depend on the Unicode tables in that module. Tests check the output with promtool and with a Prometheus server.
package prometheus
