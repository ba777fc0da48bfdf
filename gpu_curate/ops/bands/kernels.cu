// Band hashes of signatures. The definition is in __init__.py.

// A thread per document and band (blockIdx.y); scoped = 0: `scope` is not read.
extern "C" __global__ void __launch_bounds__(256)
    hash_bands(const u32* __restrict__ signatures, i64 n_docs, i32 num_hashes, i32 rows, const u64* __restrict__ scope,
               i32 scoped, u64* __restrict__ bands) {
  i64 d = global_thread();
  if (d >= n_docs) return;
  u32 band = blockIdx.y;
  const u32* row = signatures + d * num_hashes + (i64)band * rows;
  u64 h = band + 1;
  if (scoped) h ^= fmix64(scope[d]);  // fmix64(0) = 0: key 0 is the global scope
  for (i32 k = 0; k < rows; k++) {
    h = (h ^ row[k]) * GOLDEN;
    h ^= h >> 32;
  }
  bands[band * n_docs + d] = fmix64(h);
}
