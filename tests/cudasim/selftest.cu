// Kernels that exercise the emulator: what must work, and planted bugs that the checker must find.
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned char u8;

#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(T, name) extern __shared__ T name[]
#endif

extern "C" __global__ void block_min(const u32* __restrict__ in, u32* out, i64 n) {
  __shared__ u32 part[32];
  u32 v = 0xffffffffu;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) v = min(v, in[i]);
  for (int o = 16; o; o >>= 1) v = min(v, __shfl_down_sync(0xffffffffu, v, o));
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < (blockDim.x >> 5) ? part[threadIdx.x] : 0xffffffffu;
    for (int o = 16; o; o >>= 1) v = min(v, __shfl_xor_sync(0xffffffffu, v, o));
    if (threadIdx.x == 0) atomicMin(out, v);
  }
}
extern "C" __global__ void block_min_dynamic(const u32* __restrict__ in, u32* out, i64 n) {
  DYNAMIC_SHARED(u32, s);
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x] = i < n ? in[i] : 0xffffffffu;
  __syncthreads();
  for (unsigned o = blockDim.x / 2; o; o >>= 1) {
    if (threadIdx.x < o) s[threadIdx.x] = min(s[threadIdx.x], s[threadIdx.x + o]);
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicMin(out, s[0]);
}
extern "C" __global__ void half_masks(u32* out) {
  u32 m = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u, v = threadIdx.x;
  for (int o = 8; o; o >>= 1) v = max(v, __shfl_xor_sync(m, v, o));
  out[threadIdx.x] = v;
}
extern "C" __global__ void reductions(u32* out) {
  out[threadIdx.x] = __reduce_min_sync(0xffffffffu, threadIdx.x + 5u) + __popc(__match_any_sync(0xffffffffu, threadIdx.x / 4));
}
extern "C" __global__ void warp_exchange(u32* out) {
  __shared__ u32 s[32];
  for (int r = 0; r < 3; r++) {
    s[threadIdx.x] = threadIdx.x + r;
    __syncwarp();
    out[threadIdx.x] = s[threadIdx.x ^ 1];
    __syncwarp();
  }
}
extern "C" __global__ void shared_atomic(const u32* in, u32* out) {
  __shared__ u32 m;
  if (threadIdx.x == 0) m = 0xffffffffu;
  __syncthreads();
  atomicMin(&m, in[threadIdx.x]);
  __syncthreads();
  out[(i64)blockIdx.x * blockDim.x + threadIdx.x] = m;
}
extern "C" __global__ void lost_update(u32* out) { out[0] = out[0] + 1; }

// ---- planted bugs
extern "C" __global__ void bug_no_barrier(const u32* in, u32* out) {
  __shared__ u32 s[256];
  s[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void bug_reuse(const u32* in, u32* out) {  // the next round writes while others still read
  __shared__ u32 s[256];
  for (int r = 0; r < 2; r++) {
    s[threadIdx.x] = in[threadIdx.x] + r;
    __syncthreads();
    out[threadIdx.x] += s[(threadIdx.x + 1) % blockDim.x];
  }
}
extern "C" __global__ void bug_bounds(const u32* in, u32* out) { out[threadIdx.x] = in[threadIdx.x + 1]; }
extern "C" __global__ void bug_misaligned(const u8* in, uint4* out) {
  out[threadIdx.x] = *(const uint4*)(in + threadIdx.x * 16 + 1);
}
extern "C" __global__ void bug_divergent_shuffle(u32* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffffu, threadIdx.x, 3);
}
extern "C" __global__ void bug_divergent_barrier(u32* out) {
  if (threadIdx.x < 16) __syncthreads();
  else
    __syncthreads();
}
extern "C" __global__ void bug_uninitialised(u32* out) {
  __shared__ u32 s[64];
  if (threadIdx.x < 32) s[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void bug_const_write(const u32* in, u32* out) { ((u32*)in)[threadIdx.x] = 0; }
extern "C" __global__ void bug_no_syncwarp(u32* out) {
  __shared__ u32 s[32];
  s[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void bug_shift(u32* out, int n) { out[threadIdx.x] = 1u << (threadIdx.x + n); }
extern "C" __global__ void bug_index(u32* out, int n) {
  __shared__ u32 a[32];
  a[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = a[threadIdx.x + n];
}
extern "C" __global__ void bug_global_race(u32* out) { out[blockIdx.x] = 1 + out[blockIdx.x ^ 1]; }
extern "C" __global__ void bug_same_cell(u32* out) { out[0] = threadIdx.x; }
// The second word is read whatever the shift; with a shift of 0 its value is not used.
extern "C" __global__ void bug_unused_read(const u32* in, u32* out, int shift) {
  out[threadIdx.x] = __funnelshift_r(in[threadIdx.x], in[threadIdx.x + 1], shift);
}
