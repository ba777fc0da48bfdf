// In front of every kernels.cu: types, mixers, unaligned loads, UTF-8. No #include: NVRTC has no C library headers.
// Blocks have 256 threads. Kernels that would spill at ptxas' own choice of occupancy ask for less of it: (256, 4).
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#define FULL 0xffffffffu
#define DEVICE __device__ __forceinline__

DEVICE i64 global_thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE i64 least(i64 a, i64 b) { return a < b ? a : b; }

const u64 GOLDEN = 0x9E3779B97F4A7C15ull;  // 2^64 over the golden ratio

// MurmurHash3's 64-bit finaliser (Appleby).
DEVICE u64 fmix64(u64 x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

// 8 bytes chars[p .. p + 7], little-endian, from any p. Bytes outside chars[0, size) are neither read nor nonzero.
DEVICE u64 load8(const u8* __restrict__ chars, i64 p, i64 size) {
  if (p >= 8 && p + 16 <= size) {  // the one or two aligned words that hold them lie in the buffer
    const u64* word = (const u64*)((u64)(chars + p) & ~7ull);
    u32 shift = ((u32)(u64)(chars + p) & 7) * 8;
    return shift ? word[0] >> shift | word[1] << (64 - shift) : word[0];
  }
  u64 v = 0;
#pragma unroll 1
  for (int k = 0; k < 8; k++)
    if (p + k >= 0 && p + k < size) v |= (u64)chars[p + k] << (8 * k);
  return v;
}

// --------------------------------------------------------------------------------------------------------- UTF-8
const u32 ILL_FORMED = 0xFFFFFFFFu;  // no code point

// Bytes of the sequence that a lead byte (0x80 or more) begins; 0 for a byte that begins none.
DEVICE i32 sequence_size(u32 lead) { return lead - 0xC2u > 0xF4u - 0xC2u ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

// The code point of the `size` bytes at p, all of which may be read; ILL_FORMED if they are none.
DEVICE u32 code_point(const u8* __restrict__ chars, i64 p, u32 lead, i32 size) {
  u32 code = lead & (0x7Fu >> size);
  for (i32 k = 1; k < size; k++) {
    u32 c = chars[p + k];
    if ((c & 0xC0u) != 0x80u) return ILL_FORMED;
    code = code << 6 | (c & 0x3Fu);
  }
  if (size == 3 && (code < 0x800u || code - 0xD800u < 0x800u)) return ILL_FORMED;  // overlong, surrogate
  if (size == 4 && code - 0x10000u > 0xFFFFFu) return ILL_FORMED;                  // overlong, above U+10FFFF
  return code;
}

// True if a document starts inside the `size` bytes at bit i of the mask, after the first of them. The mask has two words
// more than its text.
DEVICE bool cut_by_document(const u32* __restrict__ doc_starts, u64 i, i32 size) {
  u64 next = i + 1;
  u32 bits = __funnelshift_r(doc_starts[next >> 5], doc_starts[(next >> 5) + 1], (u32)next & 31);
  return bits & ((1u << (size - 1)) - 1);
}

// A step of the hash of words and lines: 16 bytes, as two little-endian numbers.
DEVICE u64 hash_step(u64 h, u64 c0, u64 c1) {
  u64 u = (c0 ^ h) * GOLDEN, v = c1 * 0xC2B2AE3D27D4EB4Full;
  u ^= u >> 32;
  v ^= v >> 29;
  h = (u + v) * 0xD6E8FEB86659FD93ull;
  return h ^ (h >> 32);
}
DEVICE u64 low_bytes(u64 v, u32 n) { return n >= 8 ? v : v & ((1ull << (8 * n)) - 1); }

// ---------------------------------------------------------------------------------------------------- ASCII, 4 bytes at once
// The 0x80 bits of four bytes as a 4-bit number, lowest byte first.
DEVICE u32 gather4(u32 v) { return ((v >> 7 & 0x01010101u) * 0x10204080u) >> 28; }
