// xxh3-128, seed 0, of every document. Source: Collet, XXH3 specification (doc/xxhash_spec.md of the xxHash project).
//
// Documents of up to 240 bytes take a thread each (hash_short); longer ones a warp each (hash_long): 8 accumulators times
// 4 stripes at once, added up before each scrambling, which comes every 1024 bytes.
const u64 PRIME32_1 = 0x9E3779B1u, PRIME32_2 = 0x85EBCA77u, PRIME32_3 = 0xC2B2AE3Du;
const u64 PRIME64_1 = 0x9E3779B185EBCA87ull, PRIME64_2 = 0xC2B2AE3D27D4EB4Full, PRIME64_3 = 0x165667B19E3779F9ull;
const u64 PRIME64_4 = 0x85EBCA77C2B2AE63ull, PRIME64_5 = 0x27D4EB2F165667C5ull;
const u64 PRIME_MX1 = 0x165667919E3779F9ull, PRIME_MX2 = 0x9FB21C651E98DF25ull;

__device__ const u64 SECRET[24] = {  // the specification's 192 bytes, little-endian
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,
    0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull,
    0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull,
    0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull,
    0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull,
};
DEVICE u64 secret8(i32 at) {
  u32 shift = (at & 7) * 8;
  return shift ? SECRET[at >> 3] >> shift | SECRET[(at >> 3) + 1] << (64 - shift) : SECRET[at >> 3];
}

struct Hash {
  u64 low, high;
};
struct Input {
  const u8* chars;
  i64 size, at;  // of the buffer; of the document in it
  DEVICE u64 read8(i64 offset) const { return load8(chars, at + offset, size); }
  DEVICE u64 read4(i64 offset) const { return load8(chars, at + offset, size) & 0xFFFFFFFFu; }
};

DEVICE u64 swap8(u64 x) {
  u32 low = __byte_perm((u32)x, 0, 0x0123), high = __byte_perm((u32)(x >> 32), 0, 0x0123);
  return (u64)low << 32 | high;
}
DEVICE u64 fold_product(u64 a, u64 b) { return a * b ^ __umul64hi(a, b); }
DEVICE u64 avalanche(u64 h) {
  h ^= h >> 37;
  h *= PRIME_MX1;
  return h ^ (h >> 32);
}
DEVICE u64 avalanche64(u64 h) {  // XXH64's
  h ^= h >> 33;
  h *= PRIME64_2;
  h ^= h >> 29;
  h *= PRIME64_3;
  return h ^ (h >> 32);
}

DEVICE Hash hash_1_to_3(const Input& in, i64 n) {
  u32 first = in.chars[in.at], middle = in.chars[in.at + (n >> 1)], last = in.chars[in.at + n - 1];
  u32 low = first << 16 | middle << 24 | last | (u32)n << 8;
  u32 swapped = __byte_perm(low, 0, 0x0123), high = swapped << 13 | swapped >> 19;
  u64 s0 = SECRET[0], s1 = SECRET[1];
  return {avalanche64(low ^ ((s0 ^ s0 >> 32) & 0xFFFFFFFFu)), avalanche64(high ^ ((s1 ^ s1 >> 32) & 0xFFFFFFFFu))};
}
DEVICE Hash hash_4_to_8(const Input& in, i64 n) {
  u64 keyed = (in.read4(0) | in.read4(n - 4) << 32) ^ SECRET[2] ^ SECRET[3], factor = PRIME64_1 + ((u64)n << 2);
  u64 low = keyed * factor, high = __umul64hi(keyed, factor) + (low << 1);
  low ^= high >> 3;
  low ^= low >> 35;
  low *= PRIME_MX2;
  low ^= low >> 28;
  return {low, avalanche(high)};
}
DEVICE Hash hash_9_to_16(const Input& in, i64 n) {
  u64 a = in.read8(0), b = in.read8(n - 8), keyed = a ^ b ^ SECRET[4] ^ SECRET[5];
  u64 low = keyed * PRIME64_1 + ((u64)(n - 1) << 54), high = __umul64hi(keyed, PRIME64_1);
  b ^= SECRET[6] ^ SECRET[7];
  high += b + (b & 0xFFFFFFFFu) * (PRIME32_2 - 1);
  low ^= swap8(high);
  u64 top = __umul64hi(low, PRIME64_2) + high * PRIME64_2;
  return {avalanche(low * PRIME64_2), avalanche(top)};
}
// 32 bytes, 16 at a and 16 at b
DEVICE void mix32(Hash& h, const Input& in, i64 a, i64 b, i32 secret) {
  u64 a0 = in.read8(a), a1 = in.read8(a + 8), b0 = in.read8(b), b1 = in.read8(b + 8);
  h.low += fold_product(a0 ^ secret8(secret), a1 ^ secret8(secret + 8));
  h.low ^= b0 + b1;
  h.high += fold_product(b0 ^ secret8(secret + 16), b1 ^ secret8(secret + 24));
  h.high ^= a0 + a1;
}
DEVICE Hash hash_17_to_240(const Input& in, i64 n) {
  Hash h = {(u64)n * PRIME64_1, 0};
  if (n <= 128) {
    for (i32 k = (i32)(n - 1) / 32; k >= 0; k--) mix32(h, in, 16 * k, n - 16 * (k + 1), 32 * k);
  } else {
    for (i32 k = 0; k < 4; k++) mix32(h, in, 32 * k, 32 * k + 16, 32 * k);
    h.low = avalanche(h.low);
    h.high = avalanche(h.high);
    for (i32 k = 4; k < (i32)n / 32; k++) mix32(h, in, 32 * k, 32 * k + 16, 3 + 32 * (k - 4));
    mix32(h, in, n - 16, n - 32, 136 - 17 - 16);
  }
  u64 high = h.low * PRIME64_1 + h.high * PRIME64_4 + (u64)n * PRIME64_2;
  return {avalanche(h.low + h.high), 0 - avalanche(high)};
}

extern "C" __global__ void __launch_bounds__(256, 4)
    hash_short(const u8* __restrict__ chars, i64 size, const i64* __restrict__ offsets, i64 n_docs,
               u64* __restrict__ hashes) {
  i64 d = global_thread();
  if (d >= n_docs) return;
  i64 n = offsets[d + 1] - offsets[d];
  if (n > 240) return;
  Input in = {chars, size, offsets[d]};
  Hash h;
  if (n > 16) h = hash_17_to_240(in, n);
  else if (n > 8) h = hash_9_to_16(in, n);
  else if (n > 3) h = hash_4_to_8(in, n);
  else if (n > 0) h = hash_1_to_3(in, n);
  else h = {avalanche64(SECRET[8] ^ SECRET[9]), avalanche64(SECRET[10] ^ SECRET[11])};
  hashes[2 * d] = h.high;
  hashes[2 * d + 1] = h.low;
}

// What a lane's stripes add to accumulator lane & 7, summed over the four groups of 8 lanes.
DEVICE u64 gather_stripes(u64 products, u64 values) {
  u64 sum = products + __shfl_xor_sync(FULL, values, 1);  // a value goes to the neighbouring accumulator
  sum += __shfl_xor_sync(FULL, sum, 8);
  return sum + __shfl_xor_sync(FULL, sum, 16);
}
DEVICE void add_lane(u64 value, u64 secret, u64& products, u64& values) {
  u64 key = value ^ secret;
  products += (key & 0xFFFFFFFFu) * (key >> 32);
  values += value;
}
DEVICE u64 merge(u64 acc, i32 secret, u64 start) {
  u32 pair = threadIdx.x & 3;
  u64 even = __shfl_sync(FULL, acc, 2 * pair), odd = __shfl_sync(FULL, acc, 2 * pair + 1);
  u64 product = fold_product(even ^ secret8(secret + 16 * (i32)pair), odd ^ secret8(secret + 16 * (i32)pair + 8));
  product += __shfl_xor_sync(FULL, product, 1);
  product += __shfl_xor_sync(FULL, product, 2);
  return avalanche(start + product);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    hash_long(const u8* __restrict__ chars, i64 size, const i64* __restrict__ offsets, const i64* __restrict__ docs,
              i64 n_docs, u64* __restrict__ hashes) {
  i64 index = global_thread() >> 5;
  if (index >= n_docs) return;  // whole warps leave
  i64 d = docs[index], n = offsets[d + 1] - offsets[d];
  u32 lane = threadIdx.x & 31, group = lane >> 3, i = lane & 7;
  Input in = {chars, size, offsets[d]};
  const u64 START[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
  u64 acc = START[0];  // accumulator i, the same in all groups
#pragma unroll
  for (int k = 1; k < 8; k++) acc = i == k ? START[k] : acc;
  u64 secret[4];
#pragma unroll
  for (int r = 0; r < 4; r++) secret[r] = SECRET[group + 4 * r + i];
  u64 scramble = SECRET[16 + i];
  i64 n_blocks = (n - 1) / 1024;
  for (i64 b = 0; b < n_blocks; b++) {
    u64 products = 0, values = 0;
#pragma unroll
    for (int r = 0; r < 4; r++)
      add_lane(in.read8(1024 * b + 64 * (group + 4 * r) + 8 * i), secret[r], products, values);
    acc += gather_stripes(products, values);
    acc = (acc ^ acc >> 47 ^ scramble) * PRIME32_1;
  }
  i64 n_stripes = (n - 1 - 1024 * n_blocks) / 64;
  u64 products = 0, values = 0;
#pragma unroll
  for (int r = 0; r < 4; r++)
    if (group + 4 * r < n_stripes)
      add_lane(in.read8(1024 * n_blocks + 64 * (group + 4 * r) + 8 * i), secret[r], products, values);
  if (group == 0) add_lane(in.read8(n - 64 + 8 * i), secret8(192 - 64 - 7 + 8 * (i32)i), products, values);
  acc += gather_stripes(products, values);
  u64 low = merge(acc, 11, (u64)n * PRIME64_1), high = merge(acc, 192 - 64 - 11, ~((u64)n * PRIME64_2));
  if (lane == 0) {
    hashes[2 * d] = high;
    hashes[2 * d + 1] = low;
  }
}
