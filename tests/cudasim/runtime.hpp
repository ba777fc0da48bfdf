// Shared by scheduler.cpp and checker.cpp.
#pragma once
#include <string>
#include <vector>
#include "abi.hpp"

namespace cudasim {

constexpr size_t kStackBytes = 128 * 1024, kGuardBytes = 4096;

enum State : uint8_t { kReady, kWarpWait, kBlockWait, kDone };

struct Fiber {
  void* context;         // saved stack pointer (x86-64) or ucontext_t*
  unsigned char* stack;  // guard page, then kStackBytes
  uint3 tid;
  unsigned lane, warp;
  State state;
  // the collective it waits in
  int op, line, arg, width;
  unsigned mask;
  uint64_t value, result;

  unsigned index() const { return warp * 32 + lane; }
};

extern Fiber* running;
extern uint32_t block_epoch;               // counts the barriers of a launch; never repeats within it
extern std::vector<uint32_t> warp_epochs;  // counts each warp's full __syncwarp of a launch
extern unsigned long block_serial;         // counts the blocks of a launch, from 1

void yield_ready();                   // give another fiber a turn; the running one stays ready
void note(const char* format, ...);   // record a finding and go on
bool chance(unsigned one_in);         // pseudo-random, from the schedule's seed

void checker_begin_launch(bool on, unsigned preempt, unsigned dynamic_bytes);
void checker_begin_block();

}  // namespace cudasim
