// Words of a text as hashes. The definition is in __init__.py; the order of launches in gpu.py.
//
// Everything but hash_words is balanced whatever the documents look like: a thread takes 32 bytes of text, and what it
// needs from before them is local. A well-formed sequence is recognised at its lead byte alone, so 3 bytes of look-back
// find the code point that ends before any byte; only a run of SKIP code points makes the one thread behind it look back
// further.
//
// Bits of a text: bit i of a mask stands for byte origin + i of `chars`, for i from head to head + (end - base) - 1,
// where the documents' bytes are chars[base, end). `head` (0..31) is chosen so that every mask word, 32 bytes of text,
// starts at an address divisible by 32; origin = base - head may be negative.
const u32 SEPARATOR = 0, WORD = 1, UNSPACED = 2, SKIP = 3;  // classes of code points, as in ops/words

struct Text {
  const u8* chars;
  const u32* doc_starts;  // mask: first bytes of documents; two words more than the text needs
  i64 origin, end;
  const u8* stage1;  // the table of ops/words.fold_table()
  const u32* stage2;
};
struct CodePoint {
  u32 cls, folded;
  i32 size;  // bytes; 1 for an ill-formed byte, whose class is SEPARATOR
};

DEVICE bool starts_document(const Text& t, i64 p) {
  u64 i = (u64)(p - t.origin);
  return t.doc_starts[i >> 5] >> (i & 31) & 1;
}
// The code point that starts at byte p (base <= p < end), where chars[p] = lead >= 0x80.
DEVICE CodePoint decode(const Text& t, i64 p, u32 lead) {
  CodePoint c = {SEPARATOR, 0, 1};
  i32 size = sequence_size(lead);
  if (size == 0 || p + size > t.end) return c;
  if (cut_by_document(t.doc_starts, (u64)(p - t.origin), size)) return c;
  u32 code = code_point(t.chars, p, lead, size);
  if (code == ILL_FORMED) return c;
  c.folded = code;
  c.size = size;
  if (code < 0x40000u) {
    u32 e = t.stage2[(u32)t.stage1[code >> 8] * 256 + (code & 255)];
    c.cls = e >> 24;
    c.folded = (code + e) & 0xFFFFFFu;
  } else if (code - 0xE0000u < 0x1000u) {
    c.cls = SKIP;
  }
  return c;
}

// The 0x80 bit of every byte of v (four ASCII bytes) that is a letter, a digit or '_'.
DEVICE u32 ascii_word4(u32 v) {
  u32 lower = v | 0x20202020u;
  u32 letter = (lower + 0x1F1F1F1Fu) & ~(lower + 0x05050505u);
  u32 digit = (v + 0x50505050u) & ~(v + 0x46464646u);
  u32 underscore = ~((v ^ 0x5F5F5F5Fu) + 0x7F7F7F7Fu);
  return (letter | digit | underscore) & 0x80808080u;
}

// True if the last code point before byte p, SKIP code points left out, is a WORD of the same document.
DEVICE bool word_before(const Text& t, i64 p) {
  while (!starts_document(t, p)) {
    i64 q = p - 1;
    u32 c = t.chars[q];
    if (c < 0x80) return ascii_word4(c) & 0x80;
    for (int k = 0; k < 3 && (c & 0xC0u) == 0x80u && !starts_document(t, q); k++) c = t.chars[--q];
    if (c < 0x80) return false;  // continuation bytes without a lead
    CodePoint x = decode(t, q, c);
    if (x.cls != SKIP || q + x.size != p) return x.cls == WORD && q + x.size == p;
    p = q;
  }
  return false;
}

// One thread per document: the first byte of each document that has one.
extern "C" __global__ void __launch_bounds__(256)
    mark_documents(const i64* __restrict__ offsets, i64 n_docs, i64 origin, u32* doc_starts) {
  i64 d = global_thread();
  if (d >= n_docs || offsets[d] == offsets[d + 1]) return;
  u64 i = (u64)(offsets[d] - origin);
  atomicOr(&doc_starts[i >> 5], 1u << (i & 31));
}

// One thread per 32 bytes: where words start, how many start, and which bytes are ASCII word bytes.
extern "C" __global__ void __launch_bounds__(256)
    mark_words(const u8* __restrict__ chars, const u32* __restrict__ doc_starts, i64 origin, i64 base, i64 end,
               i64 n_groups, const u8* __restrict__ stage1, const u32* __restrict__ stage2, u32* __restrict__ starts,
               u8* __restrict__ counts, u32* __restrict__ ascii) {
  i64 g = global_thread();
  if (g >= n_groups) return;
  Text t = {chars, doc_starts, origin, end, stage1, stage2};
  i64 first = origin + 32 * g;
  u32 words = 0, leads = 0, tails = 0;  // ASCII word bytes, lead bytes, continuation bytes
  if (first >= base && first + 32 <= end) {
    const uint4* quads = (const uint4*)(chars + first);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint4 quad = quads[half];
      u32 v[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
      for (int k = 0; k < 4; k++) {
        int at = 16 * half + 4 * k;
        words |= gather4(ascii_word4(v[k] & 0x7F7F7F7Fu) & ~v[k]) << at;
        leads |= gather4(v[k] & v[k] << 1) << at;
        tails |= gather4(v[k] & ~(v[k] << 1)) << at;
      }
    }
  } else {
#pragma unroll 1
    for (int k = 0; k < 32; k++) {
      i64 p = first + k;
      u32 c = p >= base && p < end ? chars[p] : 0;
      if (c < 0x80) words |= (ascii_word4(c) >> 7 & 1) << k;
      else if (c >= 0xC0) leads |= 1u << k;
      else tails |= 1u << k;
    }
  }
  ascii[g] = words;

  u32 begins = words;  // first bytes of WORD code points
  u32 covers = words;  // all their bytes
  u32 singles = 0, skips = 0;
  bool inside = false;  // the code point before, SKIP left out, is a WORD
  i64 before = -1;      // where to look for it; -1: nowhere
  u32 document = doc_starts[g];
  if (!(document & 1) && first > base) {
    before = first;
    if (tails & 1) {  // the code point that began before and reaches into these bytes
      i64 q = first - 1;
      for (int k = 0; k < 2 && (chars[q] & 0xC0u) == 0x80u && !starts_document(t, q); k++) q--;
      CodePoint x = {SEPARATOR, 0, 1};
      if (chars[q] >= 0x80) x = decode(t, q, chars[q]);
      if (q + x.size > first) {
        u32 bytes = (1u << (q + x.size - first)) - 1;
        if (x.cls == WORD) covers |= bytes;
        if (x.cls == SKIP) skips |= bytes;
        inside = x.cls == WORD;
        before = x.cls == SKIP ? q : -1;
      }
    }
  }
  for (; leads; leads &= leads - 1) {
    int k = __ffs(leads) - 1;
    CodePoint x = decode(t, first + k, chars[first + k]);
    u32 bytes = ((1u << x.size) - 1) << k;
    if (x.cls == WORD) begins |= 1u << k, covers |= bytes;
    if (x.cls == UNSPACED) singles |= 1u << k;
    if (x.cls == SKIP) skips |= bytes;
  }
  // Only a WORD that comes first, SKIP left out, asks what is before; so a long run of SKIP is walked once, not by all.
  int lowest = skips == FULL ? 31 : __ffs(~skips) - 1;
  if (before >= 0 && begins >> lowest & 1 && !(document & ((2u << lowest) - 1))) inside = word_before(t, before);
  u32 found = singles;
  if (skips == 0) {
    found |= begins & ~((covers << 1 | (u32)inside) & ~document);
  } else {
    for (int k = 0; k < 32; k++) {
      u32 bit = 1u << k;
      if (document & bit) inside = false;
      if (skips & bit) continue;
      if (begins & bit && !inside) found |= bit;
      inside = covers & bit;
    }
  }
  starts[g] = found;
  counts[g] = (u8)__popc(found);
}

// One thread per document and one more: the number of marks (word starts) before each document.
extern "C" __global__ void __launch_bounds__(256)
    rank_documents(const i64* __restrict__ offsets, i64 n_docs, i64 origin, i64 end, const u32* __restrict__ starts,
                   const i64* __restrict__ before, i64 n_marks, i64* __restrict__ ranks) {
  i64 d = global_thread();
  if (d > n_docs) return;
  u64 i = (u64)(offsets[d] - origin);
  ranks[d] = offsets[d] >= end ? n_marks : before[i >> 5] + __popc(starts[i >> 5] & ((1u << (i & 31)) - 1));
}

// ------------------------------------------------------------------------------------------------- hashes of words
struct Hasher {  // 16 bytes a step, zero-padded
  u64 h, c0, c1;
  u32 fill;
};
DEVICE u64 lower8(u64 v) {  // 'A'..'Z' of eight ASCII bytes folded
  u64 upper = (v + 0x3F3F3F3F3F3F3F3Full) & ~(v + 0x2525252525252525ull) & 0x8080808080808080ull;
  return v | upper >> 2;
}
DEVICE void append(Hasher& s, u32 bytes, u32 n) {  // n bytes, 1 to 4
  u64 b = bytes;
  u32 shift = 8 * (s.fill & 7);
  u64 low = b << shift, high = shift ? b >> (64 - shift) : 0;
  if (s.fill < 8) {
    s.c0 |= low;
    s.c1 |= high;
    high = 0;
  } else {
    s.c1 |= low;
  }
  s.fill += n;
  if (s.fill >= 16) {
    s.h = hash_step(s.h, s.c0, s.c1);
    s.c0 = high;
    s.c1 = 0;
    s.fill -= 16;
  }
}
DEVICE void append_utf8(Hasher& s, u32 code) {
  u32 c0 = code & 0x3F, c1 = code >> 6 & 0x3F, c2 = code >> 12 & 0x3F;
  if (code < 0x80) append(s, code, 1);
  else if (code < 0x800) append(s, 0x80C0u | code >> 6 | c0 << 8, 2);
  else if (code < 0x10000) append(s, 0x8080E0u | code >> 12 | c1 << 8 | c0 << 16, 3);
  else append(s, 0x808080F0u | code >> 18 | c2 << 8 | c1 << 16 | c0 << 24, 4);
}

// Bits i .. i + 15 of a mask that has two words more than its text.
DEVICE u32 window16(const u32* __restrict__ mask, u64 i) {
  return __funnelshift_r(mask[i >> 5], mask[(i >> 5) + 1], (u32)i & 31) & 0xFFFFu;
}

// Hash of the word that starts at byte p. Long words are walked by one thread, 16 bytes a step.
DEVICE u64 hash_word(const Text& t, const u32* __restrict__ ascii, i64 size, i64 p) {
  Hasher s = {0, 0, 0, 0};
  i64 q = p;
  for (;;) {  // runs of ASCII, 16 bytes at once
    u64 i = (u64)(q - t.origin);
    u32 stop = ~window16(ascii, i) | (q == p ? window16(t.doc_starts, i) & ~1u : window16(t.doc_starts, i));
    u32 n = (u32)__ffs(stop | 0x10000u) - 1;
    if (n == 0) break;
    u64 a = lower8(low_bytes(load8(t.chars, q, size), n)), b = n > 8 ? lower8(low_bytes(load8(t.chars, q + 8, size), n - 8)) : 0;
    q += n;
    if (n == 16) {
      s.h = hash_step(s.h, a, b);
    } else {
      s.c0 = a;
      s.c1 = b;
      s.fill = n;
      break;
    }
  }
  while (q < t.end && (q == p || !starts_document(t, q))) {  // what is not ASCII, code point by code point
    u32 c = t.chars[q];
    CodePoint x = {SEPARATOR, c, 1};
    if (c >= 0x80) {
      x = decode(t, q, c);
    } else if (ascii_word4(c) & 0x80) {
      x.cls = WORD;
      x.folded = c - 'A' < 26u ? c | 0x20u : c;
    }
    if (x.cls == SEPARATOR || (x.cls == UNSPACED && q != p)) break;
    if (x.cls != SKIP) append_utf8(s, x.folded);
    if (x.cls == UNSPACED) break;
    q += x.size;
  }
  return s.fill ? hash_step(s.h, s.c0, s.c1) : s.h;
}

// A warp takes 32 mask words, 1 KB of text: their word starts go to shared memory, then each lane hashes every 32nd word.
extern "C" __global__ void __launch_bounds__(256, 4)
    hash_words(const u8* __restrict__ chars, i64 size, const u32* __restrict__ doc_starts, i64 origin, i64 end,
               i64 n_groups, const u8* __restrict__ stage1, const u32* __restrict__ stage2,
               const u32* __restrict__ starts, const u32* __restrict__ ascii, const i64* __restrict__ before,
               u64* __restrict__ hashes) {
  __shared__ unsigned short place[8][1024];  // a word per byte at most: documents of one byte
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  i64 g = global_thread(), first = g - lane;
  if (first >= n_groups) return;  // whole warps leave
  u32 mask = g < n_groups ? starts[g] : 0;
  u32 rank = (u32)__popc(mask);
  for (int o = 1; o < 32; o <<= 1) {
    u32 left = __shfl_up_sync(FULL, rank, o);
    if (lane >= (u32)o) rank += left;
  }
  u32 total = __shfl_sync(FULL, rank, 31);
  rank -= (u32)__popc(mask);
  for (u32 m = mask; m; m &= m - 1) place[warp][rank++] = (unsigned short)(32 * lane + __ffs(m) - 1);
  __syncwarp();
  Text t = {chars, doc_starts, origin, end, stage1, stage2};
  u64* out = hashes + before[first];
  for (u32 j = lane; j < total; j += 32) out[j] = hash_word(t, ascii, size, origin + 32 * first + place[warp][j]);
}
