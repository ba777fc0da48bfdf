// In front of every kernels.cu: types, mixers, unaligned loads, UTF-8. No #include: NVRTC has no C library headers.
//
// Bits of a text: bit i of a mask stands for byte origin + i of `chars`, for i from head to head + (end - base) - 1,
// where the documents' bytes are chars[base, end). `head` (0..31) is chosen so that every mask word, 32 bytes of text,
// starts at an address divisible by 32; origin = base - head may be negative.
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
  for (int k = 0; k < 8; k++)
    if (p + k >= 0 && p + k < size) v |= (u64)chars[p + k] << (8 * k);
  return v;
}

// --------------------------------------------------------------------------------------------------------- UTF-8
const u32 SEPARATOR = 0, WORD = 1, SINGLE = 2, SKIP = 3;  // classes of code points, as in ops/words

struct Text {
  const u8* chars;
  const u32* doc_starts;  // mask: first bytes of documents; one word more than the text needs
  i64 origin, end;
  const u8* stage1;  // the table of ops/words.fold_table()
  const u32* stage2;
};

struct CodePoint {
  u32 cls, folded;
  i32 size;  // bytes; 1 for an ill-formed byte, whose class is SEPARATOR
};

// True if a document starts inside the sequence of `size` bytes at p, after its first byte.
DEVICE bool cut_by_document(const Text& t, i64 p, i32 size) {
  u64 i = (u64)(p - t.origin) + 1;
  u32 bits = __funnelshift_r(t.doc_starts[i >> 5], t.doc_starts[(i >> 5) + 1], (u32)i & 31);
  return bits & ((1u << (size - 1)) - 1);
}

DEVICE CodePoint classify(const Text& t, u32 code, i32 size) {
  CodePoint c = {SEPARATOR, code, size};
  if (code < 0x40000u) {
    u32 e = t.stage2[(u32)t.stage1[code >> 8] * 256 + (code & 255)];
    c.cls = e >> 24;
    c.folded = (code + e) & 0xFFFFFFu;
  } else if (code - 0xE0000u < 0x1000u) {
    c.cls = SKIP;
  }
  return c;
}

// The code point that starts at byte p (base <= p < end), where chars[p] = lead >= 0x80.
DEVICE CodePoint decode(const Text& t, i64 p, u32 lead) {
  const CodePoint ill = {SEPARATOR, 0, 1};
  i32 size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (lead - 0xC2u > 0xF4u - 0xC2u || p + size > t.end || cut_by_document(t, p, size)) return ill;
  u32 code = lead & (0x7Fu >> size);
  for (i32 k = 1; k < size; k++) {
    u32 c = t.chars[p + k];
    if ((c & 0xC0u) != 0x80u) return ill;
    code = code << 6 | (c & 0x3Fu);
  }
  // overlong, surrogate, above U+10FFFF
  if (size == 3 && (code < 0x800u || code - 0xD800u < 0x800u)) return ill;
  if (size == 4 && code - 0x10000u > 0xFFFFFu) return ill;
  return classify(t, code, size);
}

DEVICE bool starts_document(const Text& t, i64 p) {
  u64 i = (u64)(p - t.origin);
  return t.doc_starts[i >> 5] >> (i & 31) & 1;
}
