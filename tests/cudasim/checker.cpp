// Finds what a GPU would not forgive: races, uninitialised shared reads, accesses outside the arrays of the launch,
// writes through const, misaligned vectors, shift counts and indices out of range.
//
// A kernel is compiled with -fsanitize=thread and linked with the callbacks at the end of this file instead of libtsan:
// each memory access of each fiber comes through touch().
//
// Per byte the last write and the last reads are remembered with the block, the barrier epoch and the warp epoch they
// happened in. Two accesses are ordered when the same thread made them, or when both are of one block and a block
// barrier, or for one warp a full __syncwarp, lies between. Unordered accesses of which one writes are a race unless
// both are atomic. Threads of different blocks are never ordered within a launch.
#include <dlfcn.h>
#include <link.h>
#include <algorithm>
#include <cstring>
#include "runtime.hpp"

namespace cudasim {

extern "C" {  // bounds of the section that holds all __shared__ variables; a kernel may have none
extern unsigned char __start_cudasim_shared[] __attribute__((weak));
extern unsigned char __stop_cudasim_shared[] __attribute__((weak));
}

enum Readers : uint8_t { kOne, kOneWarp, kOneBlock, kSeveralBlocks };

struct Cell {  // what is known about one byte
  uint32_t write_block, write_epoch, write_warp_epoch, read_block, read_epoch, read_warp_epoch;
  uint16_t writer, reader;  // thread in the block
  Readers readers;
  bool written, read, write_atomic;
};
struct Range {
  uintptr_t low, high;
  bool writable;
  std::vector<Cell> cells;
};

static bool checking;
static unsigned preempt_one_in, dynamic_bytes;
static size_t static_bytes;
static std::vector<Cell> shared_cells;
static std::vector<Range> arrays;     // the arrays passed to the kernel
static std::vector<Range> constants;  // segments of this library: __constant__ and __device__ variables, tables
static std::vector<void*> reported;   // code addresses already reported
static uintptr_t library_base;
static uint64_t n_accesses, bytes_read, bytes_written;  // bytes: of the arrays, not of shared memory

static bool first_report(void* pc) {
  if (std::find(reported.begin(), reported.end(), pc) != reported.end()) return false;
  reported.push_back(pc);
  return true;
}

void checker_begin_launch(bool on, unsigned preempt, unsigned dynamic) {
  checking = on;
  preempt_one_in = preempt;
  dynamic_bytes = dynamic;
  n_accesses = bytes_read = bytes_written = 0;
  reported.clear();
  static_bytes = __start_cudasim_shared ? __stop_cudasim_shared - __start_cudasim_shared : 0;
  for (Range& r : arrays) r.cells.clear();
  if (on)
    for (Range& r : arrays) r.cells.resize(r.high - r.low);
}
void checker_begin_block() {  // shared memory starts undefined
  if (static_bytes) memset(__start_cudasim_shared, 0xA5, static_bytes);
  if (dynamic_bytes) memset(dynamic_shared, 0xA5, dynamic_bytes);
  if (checking) shared_cells.assign(static_bytes + dynamic_bytes, Cell{});
}

static bool in_shared(uintptr_t a, size_t& offset) {
  uintptr_t low = (uintptr_t)__start_cudasim_shared, dynamic = (uintptr_t)dynamic_shared;
  if (static_bytes && a >= low && a < low + static_bytes) return offset = a - low, true;
  if (dynamic_bytes && a >= dynamic && a < dynamic + dynamic_bytes) return offset = static_bytes + a - dynamic, true;
  return false;
}

static bool ordered(uint32_t block, uint32_t epoch, uint32_t warp_epoch, unsigned thread) {
  unsigned me = running->index();
  if (block != block_serial) return false;
  return thread == me || epoch != block_epoch || (thread / 32 == running->warp && warp_epoch != warp_epochs[running->warp]);
}
static bool reads_ordered(const Cell& c) {
  if (c.readers == kSeveralBlocks || c.read_block != block_serial) return false;
  if (c.read_epoch != block_epoch) return true;
  if (c.readers == kOneBlock) return false;
  if (c.readers == kOneWarp)
    return c.reader / 32u == running->warp && c.read_warp_epoch != warp_epochs[running->warp];
  return ordered(c.read_block, c.read_epoch, c.read_warp_epoch, c.reader);
}
static void remember_read(Cell& c) {
  unsigned me = running->index();
  Readers readers = kOne;
  if (c.read && c.read_block != block_serial) readers = kSeveralBlocks;
  else if (c.read && c.readers == kSeveralBlocks) readers = kSeveralBlocks;
  else if (c.read && c.read_epoch == block_epoch) {
    if (c.reader / 32u != running->warp || c.readers == kOneBlock) readers = kOneBlock;
    else if (c.read_warp_epoch == warp_epochs[running->warp] && (c.reader != me || c.readers == kOneWarp))
      readers = kOneWarp;
  }
  c.readers = readers;
  c.read = true;
  c.read_block = (uint32_t)block_serial;
  c.read_epoch = block_epoch;
  c.read_warp_epoch = warp_epochs[running->warp];
  c.reader = (uint16_t)me;
}
static void race(const char* kind, const char* space, size_t offset, unsigned other, void* pc) {
  if (first_report(pc))
    note("RACE pc=%p: %s of %s byte %zu by thread %u and an access by thread %u are not ordered [block %u]", pc, kind,
         space, offset, running->index(), other, here.bid.x);
}
static void check_byte(Cell& c, const char* space, size_t offset, bool write, bool atomic, void* pc) {
  const char* kind = write ? "write" : "read";
  bool both_atomic = atomic && c.write_atomic;
  if (c.written && !both_atomic && !ordered(c.write_block, c.write_epoch, c.write_warp_epoch, c.writer))
    race(kind, space, offset, c.writer, pc);
  if (write && c.read && !reads_ordered(c)) race(kind, space, offset, c.reader, pc);
  if (!write) return remember_read(c);
  c.written = true;
  c.write_atomic = atomic;
  c.write_block = (uint32_t)block_serial;
  c.write_epoch = block_epoch;
  c.write_warp_epoch = warp_epochs[running->warp];
  c.writer = (uint16_t)running->index();
}

static void touch(uintptr_t a, unsigned n, bool write, bool atomic, void* pc) {
  if (!checking || !running) return;
  n_accesses++;
  if (n > 1 && n <= 16 && (a & (n - 1)))
    fail("MISALIGNED pc=%p: %u-byte %s at %p (a GPU faults here)", pc, n, write ? "write" : "read", (void*)a);
  size_t offset;
  if (in_shared(a, offset)) {
    if (offset + n > shared_cells.size()) fail("OUT OF BOUNDS pc=%p: past the end of shared memory", pc);
    for (unsigned i = 0; i < n; i++) {
      Cell& c = shared_cells[offset + i];
      if (!write && !c.written && first_report(pc))
        note("UNINITIALISED pc=%p: read of shared byte %zu that nobody wrote, thread %u [block %u]", pc, offset + i,
             running->index(), here.bid.x);
      check_byte(c, "shared", offset + i, write, atomic, pc);
    }
  } else {
    uintptr_t stack = (uintptr_t)running->stack;
    if (a >= stack && a < stack + kStackBytes + kGuardBytes) return;  // local memory
    if (a >= (uintptr_t)&here && a < (uintptr_t)(&here + 1)) return;  // threadIdx and friends
    // One buffer may be passed twice, const and not: a pointer's constness is known, an address's is not.
    Range* hit = nullptr;
    for (Range& r : arrays)
      if (a >= r.low && a + n <= r.high && (!hit || r.writable)) hit = &r;
    if (hit && (!write || hit->writable)) {
      (write ? bytes_written : bytes_read) += n;
      for (unsigned i = 0; i < n; i++) check_byte(hit->cells[a - hit->low + i], "global", a - hit->low + i, write, atomic, pc);
    } else {
      for (const Range& r : constants)
        if (a >= r.low && a + n <= r.high && (!write || r.writable)) return;
      fail("OUT OF BOUNDS pc=%p: %u-byte %s at %p is in no array passed to the kernel", pc, n, write ? "write" : "read",
           (void*)a);
    }
  }
  if (preempt_one_in && chance(preempt_one_in)) yield_ready();
}

void* touch_atomic(const void* p, unsigned size) {
  touch((uintptr_t)p, size, true, true, __builtin_return_address(0));
  return const_cast<void*>(p);
}

static int find_own_segments(dl_phdr_info* info, size_t, void*) {
  uintptr_t self = (uintptr_t)&find_own_segments;
  std::vector<Range> segments;
  bool ours = false;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& p = info->dlpi_phdr[i];
    uintptr_t low = info->dlpi_addr + p.p_vaddr, high = low + p.p_memsz;
    if (p.p_type != PT_LOAD) continue;
    ours |= low <= self && self < high;
    if (!(p.p_flags & PF_X)) segments.push_back({low, high, (p.p_flags & PF_W) != 0, {}});
  }
  if (!ours) return 0;
  library_base = info->dlpi_addr;
  constants = segments;
  return 1;
}

extern "C" {
uint64_t cudasim_library_base() {  // also finds __constant__ and __device__ variables
  if (constants.empty()) dl_iterate_phdr(find_own_segments, nullptr);
  return library_base;
}
void cudasim_traffic(uint64_t* out) {  // of the last launch: accesses, bytes read, bytes written
  out[0] = n_accesses;
  out[1] = bytes_read;
  out[2] = bytes_written;
}
void cudasim_arrays(const uint64_t* low, const uint64_t* high, const int* writable, int n) {
  arrays.clear();
  for (int i = 0; i < n; i++) arrays.push_back({(uintptr_t)low[i], (uintptr_t)high[i], writable[i] != 0, {}});
}

// ---------------------------------------------------------------- callbacks that -fsanitize=thread makes kernels call
#define PC __builtin_return_address(0)
#define ACCESS(n)                                                                         \
  void __tsan_read##n(void* a) { touch((uintptr_t)a, n, false, false, PC); }              \
  void __tsan_write##n(void* a) { touch((uintptr_t)a, n, true, false, PC); }              \
  void __tsan_unaligned_read##n(void* a) { touch((uintptr_t)a, n, false, false, PC); }    \
  void __tsan_unaligned_write##n(void* a) { touch((uintptr_t)a, n, true, false, PC); }    \
  void __tsan_volatile_read##n(void* a) { touch((uintptr_t)a, n, false, false, PC); }     \
  void __tsan_volatile_write##n(void* a) { touch((uintptr_t)a, n, true, false, PC); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* a, unsigned long n) {
  for (unsigned long i = 0; i < n; i++) touch((uintptr_t)a + i, 1, false, false, PC);
}
void __tsan_write_range(void* a, unsigned long n) {
  for (unsigned long i = 0; i < n; i++) touch((uintptr_t)a + i, 1, true, false, PC);
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

// ------------------------------------------------------------------------- callbacks of -fsanitize=shift-exponent,bounds
struct Location {
  const char* file;
  uint32_t line, column;
};
static void undefined(const char* what, const Location* at) {
  if (!running) return;
  const char* name = strrchr(at->file, '/');
  fail("%s at %s:%u", what, name ? name + 1 : at->file, at->line);
}
void __ubsan_handle_shift_out_of_bounds(Location* at, void*, void*) { undefined("SHIFT count out of range", at); }
void __ubsan_handle_out_of_bounds(Location* at, void*) { undefined("INDEX outside the declared array", at); }
}  // extern "C"

}  // namespace cudasim
