// program.cc
#include "program.h"

#include "activity.h"
#include "gpu.h"

namespace hetero {

Program::Program(const ht_program *self, const ht_step *steps, int32_t count, Quiet &quiet, Notes &notes)
    : self_(self), steps_(steps, count), quiet_(quiet), notes_(notes) {
  bool launches = false;
  for (const Step &s : steps_.list) {
    records_ = records_ || s.kind == HT_STEP_RECORD;
    waits_ = waits_ || s.kind == HT_STEP_WAIT;
    launches = launches || s.kind == HT_STEP_LAUNCH;
  }
  if (records_) check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "create a program's event");
  if (launches || steps_.list.size() > 1) quiet_.during([this] { load(true); });
}

Program::~Program() {
  if (graph_) cudaGraphExecDestroy(graph_);
  if (done_) cudaEventDestroy(done_);
}

// Makes the events of this run pending. Otherwise, a thread that waits for an event would see the completion in the
// previous run. First waits for the end of the previous run, which would otherwise complete the events again.
void Program::announce() {
  if (!records_) return;
  check(cudaEventSynchronize(done_), "wait for the last run of a program");
  for (const Step &s : steps_.list)
    if (s.kind == HT_STEP_RECORD) s.event->impl.announce();
}

void Program::enqueue(const Step &step, cudaStream_t stream) {
  switch (step.kind) {
  case HT_STEP_LAUNCH: steps_.launch(step, stream); break;
  case HT_STEP_RECORD: step.event->impl.enqueue_record(stream); break;
  case HT_STEP_WAIT: step.event->impl.enqueue_wait(stream); break;
  }
}

template <class Body> void Program::guarded_run(Body body) {
  announce();
  try {
    body();
  } catch (...) {
    for (const Step &s : steps_.list)
      if (s.kind == HT_STEP_RECORD && s.event->impl.state() == Event::pending) s.event->impl.settle(Event::failed);
    throw;
  }
}

void Program::enqueue_all(cudaStream_t stream) {
  for (size_t i = 0; i < steps_.list.size(); i++) {
    const NodesOfStep of(self_, static_cast<int32_t>(i));
    try {
      enqueue(steps_.list[i], stream);
    } catch (const std::exception &e) {
      throw std::runtime_error(steps_.name(i) + ": " + e.what());
    }
  }
}

// Creates the graph; the first call thereby loads all code. If the creation fails, the device notes the reason, and
// each run enqueues the steps one by one.
void Program::load(bool first) {
  session_ = activity_session();
  if (graph_) cudaGraphExecDestroy(graph_);
  graph_ = nullptr;
  cudaStream_t scratch = nullptr;
  try {
    check(cudaStreamCreateWithFlags(&scratch, cudaStreamNonBlocking), "create a stream for the capture");
    make_graph(scratch);
    if (first) {
      check(cudaGraphUpload(graph_, scratch), "upload a CUDA graph");
      check(cudaStreamSynchronize(scratch), "wait for the upload of a CUDA graph");
    }
  } catch (const std::exception &e) {
    if (graph_) cudaGraphExecDestroy(graph_);
    graph_ = nullptr;
    cudaGetLastError();
    notes_.add("the program launches its steps one by one, because the capture of a CUDA graph failed: " +
               std::string(e.what()));
  }
  if (scratch) cudaStreamDestroy(scratch);
  if (!graph_ || steps_.list.size() > 1) return;
  cudaGraphExecDestroy(graph_); // a single step runs faster without a graph
  graph_ = nullptr;
}

// The capture mode is relaxed: libraries load code when they first enqueue a kernel, and other modes may refuse this.
void Program::make_graph(cudaStream_t scratch) {
  struct Captured {
    cudaGraph_t graph = nullptr;
    ~Captured() {
      if (graph) cudaGraphDestroy(graph);
    }
  } captured;
  check(cudaStreamBeginCapture(scratch, cudaStreamCaptureModeRelaxed), "begin the capture of a CUDA graph");
  try {
    enqueue_all(scratch);
  } catch (...) {
    cudaStreamEndCapture(scratch, &captured.graph);
    throw;
  }
  check(cudaStreamEndCapture(scratch, &captured.graph), "end the capture of a CUDA graph");
  check(cudaGraphInstantiate(&graph_, captured.graph, 0), "instantiate a CUDA graph");
}

template <class Body> void Program::on_stream(cudaStream_t stream, Body enqueue) {
  if (waits_)
    quiet_.stand(stream, enqueue);
  else
    enqueue();
}

void Program::run(cudaStream_t stream) {
  guarded_run([&] {
    if (session_ != activity_session() && steps_.list.size() > 1) quiet_.during([this] { load(false); });
    on_stream(stream, [&] {
      if (graph_)
        check(cudaGraphLaunch(graph_, stream), "launch a CUDA graph");
      else
        enqueue_all(stream);
    });
    if (records_) check(cudaEventRecord(done_, stream), "record the end of a program");
  });
}

void Program::run_timed(cudaStream_t stream, int64_t *elapsed_ns) {
  guarded_run([&] {
    struct Marks {
      std::vector<cudaEvent_t> list;
      ~Marks() {
        for (cudaEvent_t e : list) cudaEventDestroy(e);
      }
    } marks;
    auto mark = [&] {
      cudaEvent_t e = nullptr;
      check(cudaEventCreate(&e), "create a timing event");
      marks.list.push_back(e);
      check(cudaEventRecord(e, stream), "measure the elapsed time");
    };
    on_stream(stream, [&] {
      mark();
      for (const Step &s : steps_.list) {
        enqueue(s, stream);
        mark();
      }
    });
    if (records_) check(cudaEventRecord(done_, stream), "record the end of a program");
    check(cudaStreamSynchronize(stream), "wait for a timed program");
    for (size_t i = 0; i < steps_.list.size(); i++) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, marks.list[i], marks.list[i + 1]), "measure the elapsed time");
      elapsed_ns[i] += static_cast<int64_t>(1e6 * static_cast<double>(ms));
    }
  });
}

} // namespace hetero
