// Sums of weights over the n-grams of words. The definition is in __init__.py. WEIGHT is signed char or short.

// A thread per word of the whole column: the runs that start at it, of every judge. Words of a document are neighbours, so a
// warp first adds up what its lanes have of the same document; a document costs one atomic addition a warp and judge.
extern "C" __global__ void __launch_bounds__(256)
    judge_words(const u64* __restrict__ words, i64 n_words, const i32* __restrict__ word_doc, i64 n_docs,
                const WEIGHT* __restrict__ weights, const i64* __restrict__ begins, const i32* __restrict__ bits,
                const i32* __restrict__ ngrams, i32 n_judges, u64* sums) {
  i64 i = global_thread();
  i32 lane = threadIdx.x & 31;
  bool inside = i < n_words;
  if (!__ballot_sync(FULL, inside)) return;  // whole warps leave
  i32 doc = inside ? word_doc[i] : -1;
  // A run ends with the document, so it has as many words as the first of these that lies in another one.
  i32 most = inside ? 1 : 0;
  if (inside && i + 1 < n_words && word_doc[i + 1] == doc) most = 2;
  if (most == 2 && i + 2 < n_words && word_doc[i + 2] == doc) most = 3;
  u64 first = inside ? words[i] : 0;
  u64 pair = most > 1 ? first * GOLDEN + words[i + 1] : 0;
  u64 triple = most > 2 ? pair * GOLDEN + words[i + 2] : 0;
  i32 before = __shfl_up_sync(FULL, doc, 1);
  bool heads = inside && (lane == 0 || before != doc);  // of the lanes with its document
  for (i32 j = 0; j < n_judges; j++) {
    const WEIGHT* table = weights + begins[j];
    i32 shift = 64 - bits[j], runs = ngrams[j] < most ? ngrams[j] : most;
    i32 sum = 0;  // of a warp: at most 32 lanes, 3 runs, 2^15
    if (runs > 0) sum += table[(first + GOLDEN) >> shift];
    if (runs > 1) sum += table[(pair + 2 * GOLDEN * GOLDEN) >> shift];
    if (runs > 2) sum += table[(triple + 3 * GOLDEN * GOLDEN * GOLDEN) >> shift];
    for (i32 o = 1; o < 32; o <<= 1) {  // what the lanes behind, up to the document's end, have
      i32 other = __shfl_down_sync(FULL, sum, o), other_doc = __shfl_down_sync(FULL, doc, o);
      if (lane + o < 32 && other_doc == doc) sum += other;
    }
    if (heads) atomicAdd(&sums[j * n_docs + doc], (u64)(i64)sum);
  }
}
