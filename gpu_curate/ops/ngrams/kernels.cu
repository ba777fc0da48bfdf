// n-grams that an index knows. The definition is in __init__.py.

// A thread per word of the whole column: the n-grams that start at it, in order of width, one multiplication a word.
// Windows that reach into the next document are hashed too; the document is looked up only for the few that hit.
// `starts[k]` = width * GOLDEN^width: what the shingle's first value becomes after `width` steps.
extern "C" __global__ void __launch_bounds__(256)
    find_ngrams(const u64* __restrict__ words, i64 n_words, const i64* __restrict__ word_offsets, i64 n_docs,
                const i64* __restrict__ widths, const u64* __restrict__ starts, i32 n_widths,
                const u64* __restrict__ filter, const i64* __restrict__ directory, i32 filter_bits,
                const u64* __restrict__ grams, u64* hit_count, i64 capacity, i64* __restrict__ hit_docs,
                i64* __restrict__ hit_grams) {
  i64 i = global_thread();
  if (i >= n_words) return;
  i64 at = 0;
  u64 sum = 0;
  for (i32 k = 0; k < n_widths; k++) {
    i64 width = widths[k];
    if (i + width > n_words) return;
    for (; at < width; at++) sum = sum * GOLDEN + words[i + at];
    u64 x = fmix64(sum + starts[k]), bit = x >> (64 - filter_bits);
    if (!(filter[bit >> 6] >> (bit & 63) & 1)) continue;
    u64 prefix = bit >> 4;
    i64 g = directory[prefix], end = directory[prefix + 1];
    while (g < end && grams[g] != x) g++;
    if (g == end) continue;
    i64 low = 0, high = n_docs - 1;  // the last document that starts at or before word i
    while (low < high) {
      i64 middle = (low + high + 1) >> 1;
      if (word_offsets[middle] <= i) low = middle;
      else high = middle - 1;
    }
    if (i + width > word_offsets[low + 1]) continue;
    u64 slot = atomicAdd(hit_count, 1ull);
    if (slot < (u64)capacity) {
      hit_docs[slot] = low;
      hit_grams[slot] = g;
    }
  }
}
