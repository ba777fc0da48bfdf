// Shingles, signatures, exact Jaccard. The definition is in __init__.py; the order of launches in gpu.py.
//
// Macros: SHINGLE_WORDS n; FAMILY 0 fmix64, 1 affine; LANE_ROWS rows that a lane of a half warp owns.
// A tile is at most TILE shingles of one document; a warp takes a tile, so a long document spreads over many blocks and
// short ones share one.
#define TILE 1024

DEVICE i64 count_shingles(i64 n_words) { return n_words >= SHINGLE_WORDS ? n_words - SHINGLE_WORDS + 1 : n_words > 0; }

// The shingle that begins at words[0]; `n` is SHINGLE_WORDS, or the number of words of a shorter document.
DEVICE u64 shingle(const u64* __restrict__ words, i32 n) {
  u64 h = (u64)n;
  if (n == SHINGLE_WORDS) {
#pragma unroll
    for (i32 k = 0; k < SHINGLE_WORDS; k++) h = h * GOLDEN + words[k];
  } else {
    for (i32 k = 0; k < n; k++) h = h * GOLDEN + words[k];
  }
  return fmix64(h);
}

struct Tile {
  i64 doc, first, last;  // its shingles are first .. last - 1 of the document's
  i64 words;             // where the document's words begin
  i32 width;             // words per shingle
  bool only;             // the document has no other tile
};
DEVICE Tile tile_of(i64 tile, const i64* __restrict__ tile_doc, const i64* __restrict__ tiles_before,
                    const i64* __restrict__ word_offsets) {
  Tile t;
  t.doc = tile_doc[tile];
  t.words = word_offsets[t.doc];
  i64 n_words = word_offsets[t.doc + 1] - t.words;
  t.first = (tile - tiles_before[t.doc]) * TILE;
  t.last = least(count_shingles(n_words), t.first + TILE);
  t.width = (i32)least(n_words, SHINGLE_WORDS);
  t.only = tiles_before[t.doc + 1] - tiles_before[t.doc] == 1;
  return t;
}

extern "C" __global__ void __launch_bounds__(256)
    hash_shingles(const u64* __restrict__ words, const i64* __restrict__ word_offsets, const i64* __restrict__ tile_doc,
                  const i64* __restrict__ tiles_before, i64 n_tiles, const i64* __restrict__ shingle_offsets,
                  u64* __restrict__ shingles) {
  i64 tile = global_thread() >> 5;
  if (tile >= n_tiles) return;
  Tile t = tile_of(tile, tile_doc, tiles_before, word_offsets);
  u64* out = shingles + shingle_offsets[t.doc];
  for (i64 i = t.first + (threadIdx.x & 31); i < t.last; i += 32) out[i] = shingle(words + t.words + i, t.width);
}

// Row value. fmix64 gets x and p already folded (v ^ v >> 33, which is linear); its last xor does not reach the high half.
DEVICE u32 row_value(u64 x, u64 p) {
#if FAMILY == 0
  u64 k = (x ^ p) * 0xff51afd7ed558ccdull;
  k ^= k >> 33;
  return (u32)((k * 0xc4ceb9fe1a85ec53ull) >> 32);
#else
  return (u32)x * (u32)p + (u32)(x >> 32);
#endif
}

// A warp's two halves take alternate shingles; lane l of a half owns rows l, l + 16, l + 32, ... of the pass (blockIdx.y).
// No reduction but one shuffle, and no lane idle when H is a multiple of 16. Signatures are 0xFFFFFFFF before.
extern "C" __global__ void __launch_bounds__(256)
    sign_tiles(const u64* __restrict__ words, const i64* __restrict__ word_offsets, const i64* __restrict__ tile_doc,
               const i64* __restrict__ tiles_before, i64 n_tiles, const u64* __restrict__ parameters, i32 num_hashes,
               u32* signatures) {
  __shared__ u64 staged[8][32];
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, half = lane >> 4;
  i64 tile = (i64)blockIdx.x * 8 + warp;
  if (tile >= n_tiles) return;  // whole warps leave
  Tile t = tile_of(tile, tile_doc, tiles_before, word_offsets);
  i32 row = (i32)blockIdx.y * (16 * LANE_ROWS) + (i32)(lane & 15);
  u64 p[LANE_ROWS];
  u32 best[LANE_ROWS];
#pragma unroll
  for (int k = 0; k < LANE_ROWS; k++) {
    p[k] = row + 16 * k < num_hashes ? parameters[row + 16 * k] : 0;
    best[k] = FULL;
  }
  for (i64 b = t.first; b < t.last; b += 32) {
    i64 i = least(b + lane, t.last - 1);  // past the end: the last shingle again, which a minimum does not mind
    u64 x = shingle(words + t.words + i, t.width);
#if FAMILY == 0
    x ^= x >> 33;
#endif
    staged[warp][lane] = x;
    __syncwarp();
    int count = (int)least(32, t.last - b);
    for (int j = 0; j < count; j += 8) {
#pragma unroll
      for (int r = 0; r < 4; r++) {
        u64 y = staged[warp][j + 2 * r + half];
#pragma unroll
        for (int k = 0; k < LANE_ROWS; k++) best[k] = min(best[k], row_value(y, p[k]));
      }
    }
    __syncwarp();
  }
#pragma unroll
  for (int k = 0; k < LANE_ROWS; k++) {
    u32 v = min(best[k], __shfl_xor_sync(FULL, best[k], 16));
    u32* out = signatures + t.doc * num_hashes + row + 16 * k;
    if (half == 0 && row + 16 * k < num_hashes) {
      if (t.only) *out = v;
      else atomicMin(out, v);
    }
  }
}

// A warp per pair: Jaccard similarity of two sorted sets of hashes, each element of the smaller looked up in the larger.
extern "C" __global__ void __launch_bounds__(256)
    intersect_sets(const u64* __restrict__ sets, const i64* __restrict__ offsets, const i64* __restrict__ pairs, i64 n_pairs,
                   double* __restrict__ jaccard) {
  i64 pair = global_thread() >> 5;
  if (pair >= n_pairs) return;
  i64 a = offsets[pairs[2 * pair]], a_size = offsets[pairs[2 * pair] + 1] - a;
  i64 b = offsets[pairs[2 * pair + 1]], b_size = offsets[pairs[2 * pair + 1] + 1] - b;
  if (a_size > b_size) {
    i64 swap = a;
    a = b, b = swap;
    swap = a_size;
    a_size = b_size, b_size = swap;
  }
  i64 common = 0;
  for (i64 i = threadIdx.x & 31; i < a_size; i += 32) {
    u64 x = sets[a + i];
    i64 low = 0, high = b_size;
    while (low < high) {
      i64 middle = (low + high) >> 1;
      if (sets[b + middle] < x) low = middle + 1;
      else high = middle;
    }
    common += low < b_size && sets[b + low] == x;
  }
  for (int o = 16; o; o >>= 1) common += __shfl_xor_sync(FULL, common, o);
  i64 either = a_size + b_size - common;
  if ((threadIdx.x & 31) == 0) jaccard[pair] = either ? (double)common / (double)either : 0.0;
}
