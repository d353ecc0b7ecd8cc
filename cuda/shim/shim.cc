// shim.cc: fibers for the threads of a block, and the part of the CUDA run-time library that the device uses, on the
// host.
#include <cuda.h>
#include <cuda_runtime.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace shim {
void begin_asking(); // streams.cc

__thread dim3 block_index, thread_index, block_size, grid_size;

namespace {

constexpr size_t kStack = 64 << 10;
constexpr unsigned kWarp = 32;

// A block in progress. Its fibers run in turn until each has ended. A fiber yields when it waits for all fibers, or for
// those of its warp. It does not run again until these have arrived.
//
// A fiber that has not begun runs on the stack of a fiber that has ended. A kernel without barriers therefore needs no
// switches. The next block reuses the stacks. setjmp and longjmp switch without a system call.
struct Block {
  // Fibers that wait for each other: a warp, or the block.
  struct Group {
    unsigned size = 0, arrived = 0, ended = 0, turn = 0;
    void check() {
      if (arrived == 0 || arrived + ended < size) return;
      arrived = 0;
      turn++;
    }
  };
  struct Copy {
    void *to;
    const void *from;
    unsigned bytes, valid, group;
  };
  struct Stack {
    ucontext_t context;
    jmp_buf place; // point at which the stack was left
    const void *memory = nullptr;
    size_t size = 0;
    bool begun = false;
    void *fake = nullptr; // the address sanitizer's fake stack
  };
  struct Fiber {
    std::unique_ptr<Stack> stack;
    bool begun = false, ended = false;
    const Group *awaited = nullptr; // the group that the fiber waits for, and its turn at that time
    unsigned turn = 0;
    uint64_t values[2] = {}; // passed to the other lanes of the warp, at even and at odd turns of the warp
    // Operand and result of an instruction of the warp.
    alignas(16) unsigned char operand[kOperand] = {}, result[kResult] = {};
    std::vector<Copy> copies; // pending copies
    unsigned copy_groups = 0; // number of ended groups of copies

    bool waits() const { return awaited && awaited->turn == turn; }
  };
  std::vector<std::unique_ptr<Fiber>> fibers;
  bool reversed = false; // the last fiber runs first
  Group all;
  std::vector<Group> warps;
  Stack origin; // stack of the caller of run
  bool from_origin = false;
  unsigned threads = 0, left = 0; // left: fibers that have not ended
  unsigned turn = 0, current = 0;
  const std::function<void()> *thread = nullptr;
  char *shared = nullptr; // dynamic shared memory
};

__thread Block *block = nullptr; // block that this thread runs

// Selects the next fiber that can run as the current one.
void choose() {
  Block &b = *block;
  do {
    b.turn = b.turn + 1 < b.threads ? b.turn + 1 : 0;
    b.current = b.reversed ? b.threads - 1 - b.turn : b.turn;
  } while (b.fibers[b.current]->ended || b.fibers[b.current]->waits());
  thread_index = dim3(b.current, 0, 0);
}

// Tells the address sanitizer that a switch between stacks has ended.
void arrive([[maybe_unused]] Block::Stack &at) {
#if defined(__SANITIZE_ADDRESS__)
  const void *memory = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(at.fake, &memory, &size);
  if (block->from_origin) block->origin.memory = memory, block->origin.size = size;
  block->from_origin = false;
#endif
}

// Switches to another stack. Returns when another fiber switches back to this stack.
void leave(Block::Stack &own, Block::Stack &next) {
#if defined(__SANITIZE_ADDRESS__)
  block->from_origin = &own == &block->origin;
  __sanitizer_start_switch_fiber(&own.fake, next.memory, next.size);
#endif
  if (!_setjmp(own.place)) {
    if (next.begun) _longjmp(next.place, 1);
    next.begun = true;
    setcontext(&next.context);
  }
  arrive(own);
}

// Runs fibers on one stack, one after another. It leaves the stack if the next fiber has begun on another one.
void fiber_main() {
  arrive(*block->fibers[block->current]->stack);
  for (;;) {
    Block &b = *block;
    const unsigned i = b.current;
    Block::Fiber &f = *b.fibers[i];
    f.begun = true;
    (*b.thread)();
    f.ended = true;
    b.left--;
    for (Block::Group *g : {&b.all, &b.warps[i / kWarp]}) {
      g->ended++;
      g->check();
    }
    if (b.left == 0) {
      leave(*f.stack, b.origin);
      continue;
    }
    choose();
    Block::Fiber &next = *b.fibers[b.current];
    if (next.begun)
      leave(*f.stack, *next.stack);
    else
      std::swap(f.stack, next.stack);
  }
}

// Waits until all fibers of the group that have not ended arrive here.
void wait_for(Block::Group &group) {
  Block::Fiber &f = *block->fibers[block->current];
  f.awaited = &group;
  f.turn = group.turn;
  group.arrived++;
  group.check();
  if (f.waits()) {
    choose();
    leave(*f.stack, *block->fibers[block->current]->stack);
  }
  f.awaited = nullptr;
}

void run_block(unsigned threads) {
  block->all = {threads};
  block->warps.clear();
  for (unsigned i = 0; i < threads; i += kWarp) block->warps.push_back({threads - i < kWarp ? threads - i : kWarp});
  for (unsigned i = 0; i < threads; i++) {
    Block::Fiber &f = *block->fibers[i];
    f.begun = f.ended = false;
    f.copies.clear();
    f.copy_groups = 0;
  }
  block->threads = block->left = threads;
  block->turn = threads - 1; // the first turn is that of fiber 0
  block->origin.begun = true;
  choose();
  leave(block->origin, *block->fibers[block->current]->stack);
}

// Sets the stack to start at fiber_main.
void prepare(Block::Stack &s) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(s.memory, s.size); // the stack may have been in use
#endif
  s.begun = false;
  s.fake = nullptr;
  makecontext(&s.context, fiber_main, 0);
}

void add_fiber(Block &b) {
  void *memory = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory for the stack of a fiber");
  auto stack = std::make_unique<Block::Stack>();
  stack->memory = memory;
  stack->size = kStack;
  getcontext(&stack->context);
  stack->context.uc_stack.ss_sp = memory;
  stack->context.uc_stack.ss_size = kStack;
  stack->context.uc_link = nullptr;
  prepare(*stack);
  b.fibers.emplace_back(std::make_unique<Block::Fiber>())->stack = std::move(stack);
}

// The block of a thread. When a thread ends, a later thread reuses its block with the stacks of the fibers. Tests open
// thousands of streams, and each stream is a thread. A fiber does not continue on another thread, because it may keep
// addresses of variables of its own thread.
struct Lease {
  std::unique_ptr<Block> own;

  Lease() {
    const std::lock_guard<std::mutex> lock(mutex());
    if (idle().empty()) {
      own = std::make_unique<Block>();
      return;
    }
    own = std::move(idle().back());
    idle().pop_back();
    for (auto &f : own->fibers) prepare(*f->stack);
  }
  ~Lease() {
    const std::lock_guard<std::mutex> lock(mutex());
    idle().push_back(std::move(own));
  }
  // These exist until the end of the process, so threads may end later than static objects.
  static std::mutex &mutex() {
    static auto *m = new std::mutex;
    return *m;
  }
  static std::vector<std::unique_ptr<Block>> &idle() {
    static auto *blocks = new std::vector<std::unique_ptr<Block>>;
    return *blocks;
  }
};

} // namespace

void run(dim3 grid, unsigned threads, const std::function<void()> &thread, size_t shared) {
  thread_local Lease lease;
  Block &own = *lease.own;
  block = &own;
  while (own.fibers.size() < threads) add_fiber(own);
  own.thread = &thread;
  own.reversed = std::getenv("HETERO_SHIM_REVERSED");
  // The memory has exactly the requested size, so that the address sanitizer detects every access beyond its end.
  const std::unique_ptr<char, void (*)(void *)> memory(
      shared ? static_cast<char *>(std::aligned_alloc(16, (shared + 15) / 16 * 16)) : nullptr, std::free);
  own.shared = memory.get();
  block_size = dim3(threads);
  grid_size = grid;
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        block_index = dim3(x, y, z);
        if (shared) std::memset(own.shared, 0xff, shared);
        run_block(threads);
      }
}

unsigned lane() { return thread_index.x % kWarp; }

void barrier() { wait_for(block->all); }

char *dynamic_shared() { return block->shared; }

void fault(const char *what) {
  std::fprintf(stderr, "cuda shim: thread %u of block %u: %s\n", thread_index.x, block_index.x, what);
  std::abort();
}

uint64_t exchange(uint64_t value, unsigned from) {
  const unsigned self = thread_index.x, first = self / kWarp * kWarp,
                 end = first + kWarp < block_size.x ? first + kWarp : block_size.x;
  Block::Group &warp = block->warps[self / kWarp];
  const unsigned turn = warp.turn % 2; // a fiber that is one exchange ahead uses the other element of values
  block->fibers[self]->values[turn] = value;
  wait_for(warp);
  const unsigned other = from < kWarp && first + from < end ? first + from : self;
  return block->fibers[other]->values[turn];
}

void whole_warp(const void *own, size_t bytes, void *result, void (*compute)(WarpOperands, WarpResults)) {
  const unsigned self = thread_index.x, first = self / kWarp * kWarp;
  Block::Group &warp = block->warps[self / kWarp];
  if (warp.size < kWarp || warp.ended) fault("an instruction of whole warps in a warp without all threads");
  Block::Fiber &f = *block->fibers[self];
  std::memcpy(f.operand, own, bytes);
  if (warp.arrived + 1 == kWarp) { // the last lane computes for all
    const unsigned char *operands[kWarp];
    unsigned char *results[kWarp];
    for (unsigned i = 0; i < kWarp; i++) {
      operands[i] = block->fibers[first + i]->operand;
      results[i] = block->fibers[first + i]->result;
    }
    compute(operands, results);
  }
  wait_for(warp);
  std::memcpy(result, f.result, kResult);
}

void copy_later(void *to, const void *from, unsigned bytes, unsigned valid) {
  if (reinterpret_cast<uintptr_t>(to) % bytes || reinterpret_cast<uintptr_t>(from) % bytes)
    fault("an asynchronous copy has a misaligned address");
  Block::Fiber &f = *block->fibers[block->current];
  f.copies.push_back({to, from, bytes, valid, f.copy_groups});
}

void end_copy_group() { block->fibers[block->current]->copy_groups++; }

void await_copies(unsigned groups) {
  Block::Fiber &f = *block->fibers[block->current];
  size_t done = 0;
  for (; done < f.copies.size() && f.copies[done].group + groups < f.copy_groups; done++) {
    const Block::Copy &c = f.copies[done];
    std::memcpy(c.to, c.from, c.valid);
    std::memset(static_cast<char *>(c.to) + c.valid, 0, c.bytes - c.valid);
  }
  f.copies.erase(f.copies.begin(), f.copies.begin() + static_cast<std::ptrdiff_t>(done));
}

} // namespace shim

// --- the run-time library ------------------------------------------------------------------------

namespace {

int setting(const char *name, int otherwise) {
  const char *text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

// Returns the memory of a GPU in bytes. The system reserves a part of it.
size_t memory() { return static_cast<size_t>(setting("HETERO_SHIM_MEMORY_KIB", 2 << 20)) << 10; }

thread_local int chosen = 0; // index that cudaSetDevice has set

// A GPU that this process sees: a card, or a slice of one.
struct Visible {
  int card, slice;
};

// Returns the GPUs that CUDA_VISIBLE_DEVICES selects. As in CUDA, a list of numbers ends before the first invalid
// number. Of a list of slices ("MIG-3"), only the first slice counts.
std::vector<Visible> visible() {
  const int cards = setting("HETERO_SHIM_GPUS", 1);
  std::vector<Visible> list;
  const char *text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!text) {
    for (int i = 0; i < cards; i++) list.push_back({i, 0});
    return list;
  }
  std::stringstream names(text);
  for (std::string name; std::getline(names, name, ',');) {
    if (name.rfind("MIG-", 0) == 0) {
      if (list.empty()) list.push_back({0, 1 + std::atoi(name.c_str() + 4)});
      break;
    }
    char *end = nullptr;
    const long card = std::strtol(name.c_str(), &end, 10);
    if (end == name.c_str() || *end || card < 0 || card >= cards) break;
    list.push_back({static_cast<int>(card), 0});
  }
  return list;
}

CUresult uuid_of(CUuuid *uuid, int card, int slice) {
  std::memset(uuid, 0x5a, sizeof *uuid);
  uuid->bytes[14] = static_cast<char>(slice);
  uuid->bytes[15] = static_cast<char>(card);
  return CUDA_SUCCESS;
}
// The first call on a device that creates a context calls this function. It creates the file HETERO_FAKE_CONTEXTS
// (driver.cc).
void make_context() {
  if (const char *file = std::getenv("HETERO_FAKE_CONTEXTS")) std::ofstream{file};
}

CUresult card_uuid(CUuuid *uuid, CUdevice i) { return uuid_of(uuid, visible()[size_t(i)].card, 0); }
CUresult slice_uuid(CUuuid *uuid, CUdevice i) {
  const Visible v = visible()[size_t(i)];
  return uuid_of(uuid, v.card, v.slice);
}

} // namespace

cudaError_t cudaDriverGetVersion(int *v) { return *v = setting("HETERO_SHIM_DRIVER", 13000), cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *n) {
  *n = static_cast<int>(visible().size());
  return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}
int shim::chosen_gpu() {
  const std::vector<Visible> list = visible();
  return size_t(chosen) < list.size() ? list[size_t(chosen)].card : chosen;
}
cudaError_t cudaSetDevice(int d) {
  if (d < 0 || size_t(d) >= visible().size()) return cudaErrorInvalidValue;
  shim::begin_asking();
  make_context();
  return chosen = d, cudaSuccess;
}
cudaError_t cudaGetDevice(int *d) { return *d = chosen, cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int i) {
  std::snprintf(text, size_t(size), "0000:%02x:00.0", visible()[size_t(i)].card + 1);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  make_context();
  *total = memory();
  *free = *total - *total / 32;
  return shim::lost() ? cudaErrorUnknown : cudaSuccess;
}
cudaDeviceProp shim::facts() {
  cudaDeviceProp facts{};
  std::strcpy(facts.name, "host shim");
  facts.totalGlobalMem = memory();
  const int arch = setting("HETERO_SHIM_ARCH", 90);
  facts.major = arch / 10;
  facts.minor = arch % 10;
  facts.multiProcessorCount = 1;
  facts.l2CacheSize = 1 << 20;
  facts.sharedMemPerBlockOptin = 4 << 10; // far below that of a GPU, so that tests have rows that do not fit
  return facts;
}
// HETERO_SHIM_QUERIES names a file that gets a line per call of this function.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
  if (const char *file = std::getenv("HETERO_SHIM_QUERIES")) std::ofstream(file, std::ios::app) << "properties\n";
  return *p = shim::facts(), cudaSuccess;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what, CUdevice) {
  const cudaDeviceProp facts = shim::facts();
  *value = what == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE               ? setting("HETERO_SHIM_MODE", 0)
           : what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? facts.major
                                                                  : facts.minor;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int size, CUdevice) {
  return std::snprintf(name, size_t(size), "host shim"), CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice) { return *bytes = memory(), CUDA_SUCCESS; }
const char *cudaGetErrorName(cudaError_t e) {
  return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
         : e == cudaErrorUnknown        ? "cudaErrorUnknown"
         : e == shimErrorStands         ? "shimErrorStands"
                                        : "cudaError";
}
const char *cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorMemoryAllocation ? "out of memory"
         : e == shimErrorStands         ? "it would wait for a stream that stands at a word"
                                        : "an error";
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult *found) {
  *found = cudaDriverEntryPointSuccess;
  const std::string wanted = name;
  static const std::map<std::string, void *> entries = {
      {"cuDeviceGetAttribute", reinterpret_cast<void *>(cuDeviceGetAttribute)},
      {"cuDeviceGetName", reinterpret_cast<void *>(cuDeviceGetName)},
      {"cuDeviceTotalMem", reinterpret_cast<void *>(cuDeviceTotalMem)},
      {"cuStreamWriteValue32", reinterpret_cast<void *>(cuStreamWriteValue32)},
      {"cuStreamWaitValue32", reinterpret_cast<void *>(cuStreamWaitValue32)},
  };
  *f = wanted == "cuDeviceGetUuid" ? reinterpret_cast<void *>(version < 11040 ? card_uuid : slice_uuid)
                                   : entries.at(wanted);
  return cudaSuccess;
}
