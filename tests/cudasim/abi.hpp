// What a kernel compiled against cuda_on_cpu.hpp and the runtime (scheduler.cpp, checker.cpp) agree on.
#pragma once
#include <cstddef>
#include <cstdint>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

namespace cudasim {

enum Op : int {
  kSync = 1, kSyncCount, kSyncAnd, kSyncOr,                       // block barriers
  kSyncWarp, kShflIdx, kShflUp, kShflDown, kShflXor,              // warp collectives
  kBallot, kAny, kAll, kMatchAny,
  kRedMin, kRedMax, kRedMinSigned, kRedMaxSigned, kRedAdd, kRedAnd, kRedOr, kRedXor
};

struct Here {  // the running thread
  uint3 tid, bid;
  dim3 bdim, gdim;
  unsigned lane;
};
extern Here here;
extern unsigned char* dynamic_shared;

uint64_t block_op(int op, int line, uint64_t value);
uint64_t warp_op(int op, int line, unsigned mask, uint64_t value, int arg, int width);
void* touch_atomic(const void* p, unsigned size);  // tells the checker about an atomic access
[[noreturn]] void fail(const char* format, ...);
long long clock_now();

struct ArgInfo {  // one kernel parameter, for the Python side
  int size;
  int pointer;  // 0 value, 1 pointer, 2 pointer to const
};

}  // namespace cudasim
