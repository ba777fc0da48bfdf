// Compiles a CUDA C++ kernel file with g++ so that it runs on the CPU, one fiber per CUDA thread. No CUDA is needed.
//
// module.py writes a wrapper that includes this header, then the untouched .cu file, then one CUDASIM_KERNEL(name) per
// __global__ function. One OS thread runs one block at a time; a fiber runs until it meets a barrier or a warp
// collective, parks and hands over. The order of fibers and blocks is the schedule: ascending, descending or shuffled.
//
// Not modelled: inline PTX, cooperative groups, textures, __activemask, waiting for another block, weak memory order.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>
#include "abi.hpp"

// ---------------------------------------------------------------------------------------------------- qualifiers
#define __global__ __attribute__((noipa))  // never cloned or inlined into the launcher
#define __device__
#define __host__
#define __constant__
#define __restrict__ __restrict
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// Shared variables get a linker section of their own: the runtime poisons it before each block and can tell shared from
// global addresses. Blocks run one after the other, so one copy is enough.
#define __shared__ static __attribute__((section("cudasim_shared")))
#define DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(cudasim::dynamic_shared)

#define threadIdx (cudasim::here.tid)
#define blockIdx (cudasim::here.bid)
#define blockDim (cudasim::here.bdim)
#define gridDim (cudasim::here.gdim)
#define warpSize 32

#define CUDASIM_VECTOR(T, N, A)                                                \
  struct alignas(A * 2) N##2 { T x, y; };                                      \
  struct alignas(A * 4 > 16 ? 16 : A * 4) N##4 { T x, y, z, w; };              \
  inline N##2 make_##N##2(T x, T y) { return {x, y}; }                         \
  inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDASIM_VECTOR(unsigned char, uchar, 1)
CUDASIM_VECTOR(unsigned short, ushort, 2)
CUDASIM_VECTOR(int, int, 4)
CUDASIM_VECTOR(unsigned, uint, 4)
CUDASIM_VECTOR(float, float, 4)
CUDASIM_VECTOR(long long, longlong, 8)
CUDASIM_VECTOR(unsigned long long, ulonglong, 8)
#undef CUDASIM_VECTOR

// ------------------------------------------------------------------------------------------------------- launching
#define CUDASIM_UNCHECKED __attribute__((noinline, no_sanitize("thread")))

namespace cudasim {

template <class T> uint64_t pack(T v) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t u = 0;
  std::memcpy(&u, &v, sizeof(T));
  return u;
}
template <class T> T unpack(uint64_t u) {
  T v;
  std::memcpy(&v, &u, sizeof(T));
  return v;
}

template <class A> constexpr ArgInfo describe() {
  constexpr bool to_const = std::is_const_v<std::remove_pointer_t<A>>;
  return {static_cast<int>(sizeof(A)), !std::is_pointer_v<A> ? 0 : to_const ? 2 : 1};
}
template <class... A> struct Signature {
  static constexpr ArgInfo info[sizeof...(A) + 1] = {describe<A>()..., ArgInfo{0, 0}};
  template <size_t... I>
  CUDASIM_UNCHECKED static void call(void (*kernel)(A...), void** args, std::index_sequence<I...>) {
    kernel(*static_cast<A*>(args[I])...);
  }
};
template <class... A> CUDASIM_UNCHECKED void call(void (*kernel)(A...), void** args) {
  Signature<A...>::call(kernel, args, std::index_sequence_for<A...>{});
}
template <class... A> const ArgInfo* info(void (*)(A...)) { return Signature<A...>::info; }
template <class... A> constexpr int count(void (*)(A...)) { return sizeof...(A); }

}  // namespace cudasim

#define CUDASIM_KERNEL(k)                                                                                  \
  extern "C" __attribute__((no_sanitize("thread"))) void cudasim_call_##k(void** a) { cudasim::call(&k, a); } \
  extern "C" int cudasim_count_##k() { return cudasim::count(&k); }                                        \
  extern "C" const cudasim::ArgInfo* cudasim_info_##k() { return cudasim::info(&k); }

// ------------------------------------------------------------------------------------- barriers and collectives
namespace cudasim {

template <class T> T shuffle(int op, int line, unsigned mask, T v, int arg, int width = 32) {
  return unpack<T>(warp_op(op, line, mask, pack(v), arg, width));
}
template <class T> T reduce_order(int line, unsigned mask, T v, bool largest) {
  if constexpr (std::is_signed_v<T>)
    return (T)warp_op(largest ? kRedMaxSigned : kRedMinSigned, line, mask, (uint64_t)(int64_t)v, 0, 32);
  else
    return (T)warp_op(largest ? kRedMax : kRedMin, line, mask, (uint64_t)v, 0, 32);
}
inline void sync_warp(int line, unsigned mask = 0xffffffffu) { warp_op(kSyncWarp, line, mask, 0, 0, 32); }

}  // namespace cudasim

#define __syncthreads() ((void)cudasim::block_op(cudasim::kSync, __LINE__, 0))
#define __syncthreads_count(p) ((int)cudasim::block_op(cudasim::kSyncCount, __LINE__, (p) != 0))
#define __syncthreads_and(p) ((int)cudasim::block_op(cudasim::kSyncAnd, __LINE__, (p) != 0))
#define __syncthreads_or(p) ((int)cudasim::block_op(cudasim::kSyncOr, __LINE__, (p) != 0))
#define __syncwarp(...) cudasim::sync_warp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(m, v, ...) cudasim::shuffle(cudasim::kShflIdx, __LINE__, m, v, __VA_ARGS__)
#define __shfl_up_sync(m, v, ...) cudasim::shuffle(cudasim::kShflUp, __LINE__, m, v, __VA_ARGS__)
#define __shfl_down_sync(m, v, ...) cudasim::shuffle(cudasim::kShflDown, __LINE__, m, v, __VA_ARGS__)
#define __shfl_xor_sync(m, v, ...) cudasim::shuffle(cudasim::kShflXor, __LINE__, m, v, __VA_ARGS__)
#define __ballot_sync(m, p) ((unsigned)cudasim::warp_op(cudasim::kBallot, __LINE__, m, (p) != 0, 0, 32))
#define __any_sync(m, p) ((int)cudasim::warp_op(cudasim::kAny, __LINE__, m, (p) != 0, 0, 32))
#define __all_sync(m, p) ((int)cudasim::warp_op(cudasim::kAll, __LINE__, m, (p) != 0, 0, 32))
#define __match_any_sync(m, v) ((unsigned)cudasim::warp_op(cudasim::kMatchAny, __LINE__, m, cudasim::pack(v), 0, 32))
#define __reduce_min_sync(m, v) cudasim::reduce_order(__LINE__, m, v, false)
#define __reduce_max_sync(m, v) cudasim::reduce_order(__LINE__, m, v, true)
#define __reduce_add_sync(m, v) ((decltype(v))cudasim::warp_op(cudasim::kRedAdd, __LINE__, m, (uint64_t)(v), 0, 32))
#define __reduce_and_sync(m, v) ((unsigned)cudasim::warp_op(cudasim::kRedAnd, __LINE__, m, (uint64_t)(v), 0, 32))
#define __reduce_or_sync(m, v) ((unsigned)cudasim::warp_op(cudasim::kRedOr, __LINE__, m, (uint64_t)(v), 0, 32))
#define __reduce_xor_sync(m, v) ((unsigned)cudasim::warp_op(cudasim::kRedXor, __LINE__, m, (uint64_t)(v), 0, 32))
inline void __threadfence() {}
inline void __threadfence_block() {}
inline long long clock64() { return cudasim::clock_now(); }
#define __trap() cudasim::fail("__trap() at line %d", __LINE__)

// --------------------------------------------------------------------------------------------------------- atomics
// One OS thread, so a plain read-modify-write is atomic. Out of line: the checker must see one atomic access.
#define CUDASIM_ATOMIC(name, result)                                                                \
  template <class T, class U> CUDASIM_UNCHECKED T name(T* p, U value) {                             \
    T v = (T)value;                                                                                 \
    T* q = static_cast<T*>(cudasim::touch_atomic(p, sizeof(T)));                                    \
    T old = *q;                                                                                     \
    *q = (T)(result);                                                                               \
    return old;                                                                                     \
  }
CUDASIM_ATOMIC(atomicAdd, old + v)
CUDASIM_ATOMIC(atomicSub, old - v)
CUDASIM_ATOMIC(atomicExch, v)
CUDASIM_ATOMIC(atomicMin, v < old ? v : old)
CUDASIM_ATOMIC(atomicMax, v > old ? v : old)
CUDASIM_ATOMIC(atomicAnd, old& v)
CUDASIM_ATOMIC(atomicOr, old | v)
CUDASIM_ATOMIC(atomicXor, old ^ v)
#undef CUDASIM_ATOMIC
template <class T, class U, class V> CUDASIM_UNCHECKED T atomicCAS(T* p, U expected, V value) {
  T* q = static_cast<T*>(cudasim::touch_atomic(p, sizeof(T)));
  T old = *q;
  if (old == (T)expected) *q = (T)value;
  return old;
}

// ---------------------------------------------------------------------------------------------- integer intrinsics
template <class T> __forceinline__ T __ldg(const T* p) { return *p; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
// A device evaluates what it is given before the intrinsic; inlined, g++ would move a load to the branch that needs it.
#define CUDASIM_STRICT __attribute__((noipa)) inline
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
CUDASIM_STRICT unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) {
  s &= 31;
  return s ? (hi << s) | (lo >> (32 - s)) : hi;
}
CUDASIM_STRICT unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) {
  s &= 31;
  return s ? (lo >> s) | (hi << (32 - s)) : lo;
}
CUDASIM_STRICT unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  uint64_t ab = ((uint64_t)b << 32) | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    unsigned s = (selector >> (4 * i)) & 15, byte = (unsigned)(ab >> (8 * (s & 7))) & 255;
    if (s & 8) byte = (byte & 128) ? 255 : 0;
    r |= byte << (8 * i);
  }
  return r;
}
#define CUDASIM_MIN_MAX(A, B, R)                               \
  inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; } \
  inline R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
CUDASIM_MIN_MAX(int, int, int)
CUDASIM_MIN_MAX(unsigned, unsigned, unsigned)
CUDASIM_MIN_MAX(int, unsigned, unsigned)
CUDASIM_MIN_MAX(unsigned, int, unsigned)
CUDASIM_MIN_MAX(long long, long long, long long)
CUDASIM_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
CUDASIM_MIN_MAX(float, float, float)
#undef CUDASIM_MIN_MAX
