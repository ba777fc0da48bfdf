// Runs a kernel: fibers, the order they run in, barriers and warp collectives.
// Compiled without sanitizers; the kernel it is linked with may be compiled with them (checker.cpp).
#include <sys/mman.h>
#include <time.h>
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <numeric>
#include "runtime.hpp"
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cudasim {

Here here;
unsigned char* dynamic_shared;
Fiber* running = nullptr;
uint32_t block_epoch;
std::vector<uint32_t> warp_epochs;
unsigned long block_serial;

static std::vector<Fiber*> fibers;  // fiber i is thread i of the block
static unsigned n_threads, n_warps, n_done, n_at_barrier;
static std::vector<unsigned> order;  // run order of this pass
static unsigned order_pos;
static void (*kernel)(void**);
static void** kernel_args;
static unsigned long schedule;
static uint64_t random_state, n_switches;
static std::string findings;
static bool aborted;

struct Warp {
  uint32_t waiting, done;  // lane masks
};
static std::vector<Warp> warps;

static uint64_t random_next() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}
bool chance(unsigned one_in) { return random_next() % one_in == 0; }

// ------------------------------------------------------------------------------------------------ context switches
static void fiber_main();
static void* scheduler_context;

#if defined(__x86_64__)
extern "C" void cudasim_switch(void** save, void* load);  // keeps the callee-saved registers on the old stack
asm(R"(
.text
.globl cudasim_switch
.hidden cudasim_switch
.type cudasim_switch,@function
cudasim_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size cudasim_switch,.-cudasim_switch
)");
static void switch_context(void** save, void* load) { cudasim_switch(save, load); }
static void* new_context(unsigned char* stack) {
  void** sp = reinterpret_cast<void**>(stack + kGuardBytes + kStackBytes);
  *--sp = nullptr;  // keeps the ABI's 16-byte alignment at fiber_main's entry
  *--sp = reinterpret_cast<void*>(&fiber_main);
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  return sp;
}
static void free_context(void*) {}
#else  // any other CPU: the C library's switch, several times slower
static void switch_context(void** save, void* load) {
  if (!*save) *save = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(*save), static_cast<ucontext_t*>(load));
}
static void* new_context(unsigned char* stack) {
  auto* context = new ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = stack + kGuardBytes;
  context->uc_stack.ss_size = kStackBytes;
  context->uc_link = nullptr;
  makecontext(context, fiber_main, 0);
  return context;
}
static void free_context(void* context) { delete static_cast<ucontext_t*>(context); }
#endif

static Fiber* new_fiber() {
  auto* f = new Fiber();
  f->stack = static_cast<unsigned char*>(mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  mprotect(f->stack, kGuardBytes, PROT_NONE);  // a stack overflow faults instead of corrupting
  f->context = new_context(f->stack);
  return f;
}
static void drop_fibers() {  // after a failure: they are parked in the middle of a kernel
  for (Fiber* f : fibers) {
    free_context(f->context);
    munmap(f->stack, kStackBytes + kGuardBytes);
    delete f;
  }
  fibers.clear();
}

static Fiber* next_ready() {
  while (order_pos < n_threads) {
    Fiber* f = fibers[order[order_pos++]];
    if (f->state == kReady) return f;
  }
  return nullptr;
}
static void resume(void** save, Fiber* f) {
  running = f;
  here.tid = f->tid;
  here.lane = f->lane;
  switch_context(save, f->context);
}
static void park() {  // straight to the next ready fiber of this pass, else to the scheduler
  n_switches++;
  Fiber *me = running, *f = next_ready();
  if (f == me) return;
  if (f)
    resume(&me->context, f);
  else
    switch_context(&me->context, scheduler_context);
}
void yield_ready() { park(); }

static void release_block();
static void fiber_main() {  // a fiber outlives its block: each resume after the end runs the kernel once more
  for (;;) {
    kernel(kernel_args);
    running->state = kDone;
    n_done++;
    warps[running->warp].done |= 1u << running->lane;
    if (n_at_barrier && n_at_barrier + n_done == n_threads) release_block();
    park();
  }
}

// -------------------------------------------------------------------------------------------------------- findings
void note(const char* format, ...) {
  char text[768];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (findings.size() > 4000) return;
  if (!findings.empty()) findings += "\n";
  findings += text;
}
void fail(const char* format, ...) {
  char text[768];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  note("%s [block (%u,%u,%u) thread (%u,%u,%u)]", text, here.bid.x, here.bid.y, here.bid.z, here.tid.x, here.tid.y,
       here.tid.z);
  aborted = true;
  switch_context(&running->context, scheduler_context);
  __builtin_unreachable();
}
long long clock_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// -------------------------------------------------------------------------------------------------- block barriers
static void release_block() {
  uint64_t count = 0, all = 1, any = 0;
  auto each_waiting = [](auto use) {
    for (unsigned i = 0; i < n_threads; i++)
      if (fibers[i]->state == kBlockWait) use(fibers[i]);
  };
  each_waiting([&](Fiber* f) {
    count += f->value;
    all &= f->value != 0;
    any |= f->value != 0;
  });
  each_waiting([&](Fiber* f) {
    f->result = f->op == kSyncCount ? count : f->op == kSyncAnd ? all : f->op == kSyncOr ? any : 0;
    f->state = kReady;
  });
  n_at_barrier = 0;
  block_epoch++;
}
uint64_t block_op(int op, int line, uint64_t value) {
  Fiber* me = running;
  if (n_at_barrier) {
    Fiber* first = *std::find_if(fibers.begin(), fibers.end(), [](Fiber* f) { return f->state == kBlockWait; });
    if (first->line != line || first->op != op)
      fail("divergent __syncthreads: line %d while thread (%u,%u,%u) waits at line %d", line, first->tid.x,
           first->tid.y, first->tid.z, first->line);
  }
  me->op = op;
  me->line = line;
  me->value = value;
  me->state = kBlockWait;
  n_at_barrier++;
  if (n_at_barrier + n_done == n_threads)
    release_block();
  else
    park();
  return me->result;
}

// ------------------------------------------------------------------------------------------------ warp collectives
static uint64_t reduce(int op, uint64_t a, uint64_t b) {
  switch (op) {
    case kRedMin: return std::min(a, b);
    case kRedMax: return std::max(a, b);
    case kRedMinSigned: return (uint64_t)std::min((int64_t)a, (int64_t)b);
    case kRedMaxSigned: return (uint64_t)std::max((int64_t)a, (int64_t)b);
    case kRedAdd: return a + b;
    case kRedAnd: return a & b;
    case kRedOr: return a | b;
    default: return a ^ b;
  }
}
static uint64_t shuffled(Fiber** warp, Fiber* f) {
  int lane = (int)f->lane, base = lane & ~(f->width - 1), top = base + f->width - 1, source = lane;
  if (f->op == kShflIdx) source = base + (f->arg & (f->width - 1));
  if (f->op == kShflUp && lane - f->arg >= base) source = lane - f->arg;
  if (f->op == kShflDown && lane + f->arg <= top) source = lane + f->arg;
  if (f->op == kShflXor && (lane ^ f->arg) <= top) source = lane ^ f->arg;
  if (source < 0 || source > 31 || !(f->mask >> source & 1))
    fail("shuffle at line %d: lane %d reads lane %d, which is not in mask %08x", f->line, lane, source, f->mask);
  return warp[source]->value;
}
static unsigned lanes_of(unsigned warp) {  // mask of the lanes that exist; the last warp may be partial
  unsigned n = std::min(32u, n_threads - warp * 32);
  return n == 32 ? 0xffffffffu : (1u << n) - 1;
}
static void finish_collective(unsigned warp_index, unsigned mask, int op) {
  Fiber** warp = &fibers[warp_index * 32];
  unsigned ballot = 0;
  uint64_t reduction = 0;
  bool first = true;
  for (unsigned l = 0; l < 32; l++) {
    if (!(mask >> l & 1)) continue;
    if (warp[l]->value) ballot |= 1u << l;
    if (op >= kRedMin) reduction = first ? warp[l]->value : reduce(op, reduction, warp[l]->value);
    first = false;
  }
  for (unsigned l = 0; l < 32; l++) {
    if (!(mask >> l & 1)) continue;
    Fiber* f = warp[l];
    if (op == kSyncWarp) f->result = 0;
    else if (op <= kShflXor) f->result = shuffled(warp, f);
    else if (op == kBallot) f->result = ballot;
    else if (op == kAny) f->result = ballot != 0;
    else if (op == kAll) f->result = ballot == mask;
    else if (op == kMatchAny) {
      unsigned same = 0;
      for (unsigned k = 0; k < 32; k++)
        if ((mask >> k & 1) && warp[k]->value == f->value) same |= 1u << k;
      f->result = same;
    } else f->result = reduction;
  }
  for (unsigned l = 0; l < 32; l++)
    if (mask >> l & 1) warp[l]->state = kReady;
  if (op == kSyncWarp && mask == lanes_of(warp_index)) warp_epochs[warp_index]++;
}
uint64_t warp_op(int op, int line, unsigned mask, uint64_t value, int arg, int width) {
  Fiber* me = running;
  if (!(mask >> me->lane & 1))
    fail("line %d: lane %u calls a warp collective but is not in its mask %08x", line, me->lane, mask);
  mask &= lanes_of(me->warp);
  if (width < 1 || width > 32 || (width & (width - 1))) fail("line %d: width %d is not a power of two", line, width);
  me->op = op;
  me->line = line;
  me->mask = mask;
  me->value = value;
  me->arg = arg;
  me->width = width;
  me->state = kWarpWait;
  Warp& w = warps[me->warp];
  if (w.done & mask) fail("line %d: mask %08x names lane %d, which has exited", line, mask, __builtin_ctz(w.done & mask));
  if (unsigned peers = w.waiting & mask) {
    Fiber* f = fibers[me->warp * 32 + __builtin_ctz(peers)];
    if (f->mask != mask || f->op != op || f->line != line)
      fail("divergent warp collective: lane %u at line %d mask %08x, lane %u at line %d mask %08x", me->lane, line,
           mask, f->lane, f->line, f->mask);
  }
  w.waiting |= 1u << me->lane;
  if ((w.waiting & mask) == mask) {
    w.waiting &= ~mask;
    finish_collective(me->warp, mask, op);
  } else {
    park();
  }
  return me->result;
}

// ------------------------------------------------------------------------------------------------ blocks, launches
static void report_deadlock() {
  std::string text = "deadlock:";
  int shown = 0;
  for (unsigned i = 0; i < n_threads && shown < 6; i++) {
    Fiber* f = fibers[i];
    if (f->state == kDone) continue;
    char line[120];
    if (f->state == kBlockWait)
      snprintf(line, sizeof line, " thread %u waits at line %d for the block;", i, f->line);
    else
      snprintf(line, sizeof line, " thread %u waits at line %d for mask %08x;", i, f->line, f->mask);
    text += line;
    shown++;
  }
  note("%s", text.c_str());
  aborted = true;
}
static void run_block() {
  n_done = n_at_barrier = 0;
  block_epoch++;
  block_serial++;
  for (uint32_t& epoch : warp_epochs) epoch++;
  for (unsigned i = 0; i < n_threads; i++) fibers[i]->state = kReady;
  warps.assign(n_warps, Warp{0, 0});
  checker_begin_block();
  order.resize(n_threads);
  std::iota(order.begin(), order.end(), 0u);
  if (schedule == 1) std::reverse(order.begin(), order.end());
  while (n_done < n_threads && !aborted) {
    if (schedule >= 2)
      for (unsigned i = n_threads - 1; i > 0; i--) std::swap(order[i], order[random_next() % (i + 1)]);
    uint64_t before = n_switches;
    order_pos = 0;
    if (Fiber* f = next_ready()) resume(&scheduler_context, f);
    if (!aborted && n_switches == before) report_deadlock();
  }
}
static uint64_t block_at(uint64_t step, uint64_t n_blocks) {  // schedule >= 2: a bijective stride over the blocks
  if (schedule == 0 || n_blocks < 2) return step;
  if (schedule == 1) return n_blocks - 1 - step;
  uint64_t stride = schedule * 2654435761u % n_blocks;
  while (std::gcd(stride, n_blocks) != 1) stride++;
  return (step * stride + schedule) % n_blocks;
}

extern "C" {
const char* cudasim_findings() { return findings.c_str(); }
uint64_t cudasim_switches() { return n_switches; }

// 0 when clean, 1 when anything was found. schedule: 0 ascending, 1 descending, 2 and up shuffled.
// preempt > 0: a fiber may also be interrupted at one in so many checked memory accesses.
// Of the next launch, only these blocks are run: kernels over billions of items are tried at their far end.
static uint64_t first_block = 0, most_blocks = ~0ull;
void cudasim_only(unsigned long first, unsigned long count) {
  first_block = first;
  most_blocks = count;
}
int cudasim_launch(void (*call)(void**), void** args, const unsigned* grid, const unsigned* block, unsigned dynamic_bytes,
                   unsigned long schedule_, int check, unsigned preempt) {
  findings.clear();
  aborted = false;
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (threads < 1 || threads > 1024) return note("block of %lu threads: 1..1024 allowed", (unsigned long)threads), 1;
  if (!grid[0] || !grid[1] || !grid[2] || grid[1] > 65535 || grid[2] > 65535 || grid[0] > 0x7fffffffu)
    return note("grid (%u,%u,%u) is empty or too large", grid[0], grid[1], grid[2]), 1;
  n_threads = (unsigned)threads;
  n_warps = (n_threads + 31) / 32;
  while (fibers.size() < n_warps * 32) fibers.push_back(new_fiber());
  for (unsigned i = 0; i < n_threads; i++) {
    fibers[i]->tid = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
    fibers[i]->lane = i & 31;
    fibers[i]->warp = i >> 5;
  }
  kernel = call;
  kernel_args = args;
  schedule = schedule_;
  random_state = 0x9E3779B97F4A7C15ull * (schedule + 1);
  n_switches = 0;
  block_epoch = 0;
  block_serial = 0;
  warp_epochs.assign(n_warps, 0);
  std::vector<unsigned char> dynamic(dynamic_bytes + 16);
  dynamic_shared = reinterpret_cast<unsigned char*>(((uintptr_t)dynamic.data() + 15) & ~(uintptr_t)15);
  checker_begin_launch(check, preempt, dynamic_bytes);
  here.bdim = {block[0], block[1], block[2]};
  here.gdim = {grid[0], grid[1], grid[2]};
  uint64_t n_blocks = (uint64_t)grid[0] * grid[1] * grid[2];
  uint64_t first = first_block, chosen = std::min(most_blocks, n_blocks - std::min(first_block, n_blocks));
  first_block = 0, most_blocks = ~0ull;
  for (uint64_t step = 0; step < chosen && !aborted; step++) {
    uint64_t b = first + block_at(step, chosen);
    here.bid = {(unsigned)(b % grid[0]), (unsigned)(b / grid[0] % grid[1]), (unsigned)(b / grid[0] / grid[1])};
    run_block();
  }
  running = nullptr;
  if (aborted) drop_fibers();
  return findings.empty() ? 0 : 1;
}
}  // extern "C"

}  // namespace cudasim
