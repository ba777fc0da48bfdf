// Text statistics. The definition is in __init__.py; the order of launches in gpu.py.
//
// A thread takes a line, reads it character by character, as the definition does, and adds what it finds to its document.
// Threads take the lines by length (`order`), so that those of a warp end together. Words are found and hashed apart, a
// thread a word, because lanes that read lines end their words at different times. Words, n-grams, lines and paragraphs are compared in open-addressing tables: each document has a
// region of two slots an item, a slot holds the first of equal items, and all documents are worked on at once.
//
// Macros: C_* are the rows of the statistics, in the order of NAMES; STOP_WORD_HASHES: those of the stop words.

const u32 SPACE = 1, ALPHABETIC = 2, SYMBOL = 4, TERMINAL = 8, UPPERCASE = 16;  // classes of code points
const u32 KIND = 0xE0, CLOSING = 0x20, HAN = 0x40, KANA = 0x60, UNSPACED = 0x80, DOUBLE = 0xA0;  // classes & KIND
const i32 HAN_CHARS = 4, DOUBLE_CHARS = 2, WORD_PARTS = 12, HAN_PARTS = 8, UNSPACED_PARTS = 3;
const u32 NOTHING = 0xFFFFFFFFu;                                                // an empty slot
const i32 SHORT_LINE_CHARS = 30, C4_MIN_LINE_WORDS = 3, C4_MAX_WORD_CHARS = 1000;

struct Chars {
  const u8* chars;
  i64 size;  // of the buffer
  const u8* stage1;
  const u8* stage2;  // the table of text_stats.character_classes()
  const u8* ascii;   // its page of ASCII
};
DEVICE Chars chars_of(const u8* chars, i64 size, const u8* stage1, const u8* stage2) {
  return {chars, size, stage1, stage2, stage2 + (u32)stage1[0] * 256};
}
struct Character {
  u32 code, classes;  // code: ILL_FORMED if it is none
  i32 size;
};
DEVICE Character character(const Chars& t, i64 p, i64 end) {
  u32 c = t.chars[p];
  if (c < 0x80) return {c, t.ascii[c], 1};
  Character x = {ILL_FORMED, SYMBOL, 1};
  i32 size = sequence_size(c);
  if (size == 0 || p + size > end) return x;
  x.code = code_point(t.chars, p, c, size);
  if (x.code == ILL_FORMED) return x;
  x.size = size;
  x.classes = x.code < 0x40000u ? t.stage2[(u32)t.stage1[x.code >> 8] * 256 + (x.code & 255)] : 0;
  return x;
}
DEVICE bool continues(u32 byte) { return (byte & 0xC0u) == 0x80u; }
// The character of chars[start, end) that ends at `end` > start; SYMBOL if none does.
DEVICE Character character_before(const Chars& t, i64 start, i64 end) {
  i64 lead = end - 1;
  while (lead > start && end - lead < 4 && continues(t.chars[lead])) lead--;
  Character x = character(t, lead, end);
  if (lead + x.size != end) x = {ILL_FORMED, SYMBOL, 1};
  return x;
}
DEVICE bool is_at(const u8* __restrict__ chars, i64 p, u32 a, u32 b, u32 c) {
  return chars[p] == a && chars[p + 1] == b && chars[p + 2] == c;
}

DEVICE u32 count_continuations(u64 v) { return (u32)__popcll(v & ~(v << 1) & 0x8080808080808080ull); }
struct Hashed {
  u64 hash;
  u32 continuations;  // bytes that begin no character
};
// chars[p, end): the hash of words, over raw bytes, from h = their number.
DEVICE Hashed hash_bytes(const u8* __restrict__ chars, i64 size, i64 p, i64 end) {
  u64 h = (u64)(end - p);
  u32 continuations = 0;
  for (i64 left = end - p;; left -= 16, p += 16) {
    u32 n = (u32)least(left, 16);
    u64 a = low_bytes(load8(chars, p, size), n), b = n > 8 ? low_bytes(load8(chars, p + 8, size), n - 8) : 0;
    continuations += count_continuations(a) + count_continuations(b);
    h = hash_step(h, a, b);
    if (left <= 16) return {h, continuations};
  }
}

// ------------------------------------------------------------------------------------------------------------- lines
// One thread per 32 bytes: where lines start: at a document's first byte and after a "\n".
extern "C" __global__ void __launch_bounds__(256)
    mark_lines(const u8* __restrict__ chars, const u32* __restrict__ doc_starts, i64 origin, i64 base, i64 end,
               i64 n_groups, u32* __restrict__ starts, u8* __restrict__ counts) {
  i64 g = global_thread();
  if (g >= n_groups) return;
  i64 first = origin + 32 * g;
  u32 newlines = 0;
  if (first >= base && first + 32 <= end) {
    const uint4* quads = (const uint4*)(chars + first);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint4 quad = quads[half];
      u32 v[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
      for (int k = 0; k < 4; k++) {
        u32 x = v[k] ^ 0x0A0A0A0Au;  // 0x80 of a byte of ~(...): that byte of x is 0
        newlines |= gather4(~(((x & 0x7F7F7F7Fu) + 0x7F7F7F7Fu) | x)) << (16 * half + 4 * k);
      }
    }
  } else {
#pragma unroll 1
    for (int k = 0; k < 32; k++) {
      i64 p = first + k;
      if (p >= base && p < end && chars[p] == '\n') newlines |= 1u << k;
    }
  }
  u32 found = doc_starts[g] | newlines << 1 | (u32)(first > base && chars[first - 1] == '\n');
  if (first + 32 > end) found &= end > first ? (1u << (u32)(end - first)) - 1 : 0;  // a last "\n" begins no line
  if (first < base) found &= FULL << (u32)(base - first);
  starts[g] = found;
  counts[g] = (u8)__popc(found);
}
// One thread per 32 bytes: the positions of the marks.
extern "C" __global__ void __launch_bounds__(256)
    find_marks(const u32* __restrict__ starts, const i64* __restrict__ before, i64 n_groups, i64 origin,
               i64* __restrict__ positions) {
  i64 g = global_thread();
  if (g >= n_groups) return;
  i64* out = positions + before[g];
  for (u32 m = starts[g]; m; m &= m - 1) *out++ = origin + 32 * g + __ffs(m) - 1;
}

struct Line {
  i64 doc, start, stop, doc_end;  // stop: its "\n", or the document's end
};
DEVICE Line line_of(i64 l, const i64* __restrict__ starts, const i64* __restrict__ docs,
                    const i64* __restrict__ line_offsets, const i64* __restrict__ offsets,
                    const u8* __restrict__ chars) {
  Line x;
  x.doc = docs[l];
  x.start = starts[l];
  x.doc_end = offsets[x.doc + 1];
  if (l + 1 < line_offsets[x.doc + 1]) x.stop = starts[l + 1] - 1;
  else x.stop = chars[x.doc_end - 1] == '\n' ? x.doc_end - 1 : x.doc_end;
  return x;
}

// True if chars[start, stop) ends with a phrase of n bytes; fold: whatever the case of its ASCII letters.
DEVICE bool ends_with(const u8* __restrict__ chars, i64 start, i64 stop, const char* phrase, i32 n, bool fold) {
  if (stop - start < n) return false;
  for (i32 k = 0; k < n; k++) {
    u32 c = chars[stop - n + k];
    if (fold && c - 'A' < 26u) c |= 0x20u;
    if (c != (u32)phrase[k]) return false;
  }
  return true;
}
// The end of chars[start, stop) without the citations at its end: [digits], [edit], [citation needed].
DEVICE i64 without_citations(const u8* __restrict__ chars, i64 start, i64 stop) {
  while (stop - start >= 2 && chars[stop - 1] == ']') {
    i64 p = stop - 2;
    while (p > start && chars[p] - '0' < 10u) p--;
    if (chars[p] == '[') stop = p;
    else if (ends_with(chars, start, stop, "[edit]", 6, false)) stop -= 6;
    else if (ends_with(chars, start, stop, "[citation needed]", 17, false)) stop -= 17;
    else break;
  }
  return stop;
}

// Phrases that C4 looks for, told by their last four bytes; `tail` has the last one lowest.
const u32 JAVASCRIPT = 1, LOREM_IPSUM = 2, POLICY = 4;
DEVICE u32 phrase_before(const u8* __restrict__ chars, i64 start, i64 stop, u32 tail) {
  switch (tail) {
    case 0x72697074u:  // ript
      return ends_with(chars, start, stop, "javascript", 10, true) ? JAVASCRIPT : 0;
    case 0x7073756Du:  // psum
      return ends_with(chars, start, stop, "lorem ipsum", 11, true) ? LOREM_IPSUM : 0;
    case 0x6C696379u:  // licy
      return ends_with(chars, start, stop, "privacy policy", 14, true) ||
                     ends_with(chars, start, stop, "cookie policy", 13, true) ? POLICY : 0;
    case 0x20757365u:  // " use"
      return ends_with(chars, start, stop, "terms of use", 12, true) ? POLICY : 0;
    case 0x6B696573u:  // kies
      return ends_with(chars, start, stop, "uses cookies", 12, true) ||
                     ends_with(chars, start, stop, "use of cookies", 14, true) ||
                     ends_with(chars, start, stop, "use cookies", 11, true) ? POLICY : 0;
  }
  return 0;
}

struct Sentences {
  i32 count;      // that have ended
  bool start;     // nothing of the next one is read
  bool ended;     // its TERMINAL characters are being read
  bool initial;   // the rest has an UPPERCASE character with its "."
  bool upper;     // the character before is an UPPERCASE one of this sentence
};
DEVICE void read_sentence(Sentences& s, u32 code, u32 classes) {
  if (s.ended) {
    if (classes & TERMINAL) return;
    s.ended = false;
    s.start = true;
    s.upper = false;
    if (code == '"' || code == '\'' || (classes & KIND) == CLOSING) return;
  }
  if (code == '.' && s.upper) {
    s.initial = true;  // an initial with its dot
    s.upper = false;
  } else if (classes & TERMINAL && !s.start) {
    s.count++;
    s.ended = true;
    s.initial = false;
  } else {
    s.upper = classes & UPPERCASE;
  }
  s.start = false;
}

DEVICE void count(i32* __restrict__ stats, i64 n_docs, i64 doc, i32 row, i32 n) {
  if (n) atomicAdd(&stats[row * n_docs + doc], n);
}

// One thread per line, order[thread]: everything but the comparisons. first_word, last_word: where each document's words
// begin and end.
extern "C" __global__ void __launch_bounds__(256, 4)
    read_lines(const u8* __restrict__ chars, i64 size, const u8* __restrict__ stage1, const u8* __restrict__ stage2,
               const i64* __restrict__ offsets, i64 n_docs, const i64* __restrict__ starts,
               const i64* __restrict__ docs, const i64* __restrict__ order, i64 n_lines,
               const i64* __restrict__ line_offsets, i32* __restrict__ line_words,
               i32* __restrict__ line_chars, u64* first_word, u64* last_word, i32* stats) {
  if (global_thread() >= n_lines) return;
  i64 l = order[global_thread()];
  Line line = line_of(l, starts, docs, line_offsets, offsets, chars);
  Chars t = chars_of(chars, size, stage1, stage2);
  i32 n_chars = 0, words = 0, alphabetic = 0, solid_words = 0, solid_chars = 0, hashes = 0, ellipses = 0;
  i32 dots = 0, word_chars = 0, han = 0, unspaced = 0, doubles = 0;
  i64 first = -1, last = -1;  // of the words
  u32 word_classes = 0;       // ALPHABETIC: has one; SYMBOL: has one that is not SYMBOL; UNSPACED: hides words
  u32 tail = 0, phrases = 0, last_classes = 0;
  bool inside = false, brace = false, long_word = false;
  Sentences s = {0, true, false, false, false};
  for (i64 p = line.start; p <= line.stop;) {
    Character x = {' ', SPACE, 1};  // behind the line: ends its last word
    if (p < line.stop) {
      x = character(t, p, line.stop);
      bool counted = !continues(chars[p]);
      n_chars += counted;
      u32 kind = x.classes & KIND;
      if (kind != CLOSING) last_classes = x.classes;
      bool hides = kind == KANA || kind == UNSPACED;
      han += kind == HAN;
      unspaced += hides;
      doubles += kind == KANA || kind == DOUBLE;
      hashes += x.code == '#';
      dots = x.code == '.' ? dots + 1 : 0;
      if (dots == 3 || x.code == 0x2026) ellipses++, dots = 0;
      brace |= x.code == '{';
      tail = x.code < 0x80 ? tail << 8 | (x.code - 'A' < 26u ? x.code | 0x20u : x.code) : 0;
      phrases |= phrase_before(chars, line.start, p + 1, tail);
      if (!(x.classes & SPACE)) {
        if (!inside) {
          inside = true;
          word_chars = 0;
          word_classes = 0;
          words++;
          if (first < 0) first = p;
        }
        word_chars += counted;
        word_classes |= (x.classes & ALPHABETIC) | (~x.classes & SYMBOL) | (hides || kind == HAN ? UNSPACED : 0);
      }
      if (first >= 0) read_sentence(s, x.code, x.classes);
    }
    if (inside && x.classes & SPACE) {
      inside = false;
      last = p;
      alphabetic += (word_classes & ALPHABETIC) != 0;
      solid_words += (word_classes & SYMBOL) != 0;
      solid_chars += word_classes & SYMBOL ? word_chars : 0;
      long_word |= word_chars > C4_MAX_WORD_CHARS && !(word_classes & UNSPACED);
    }
    p += x.size;
  }
  line_words[l] = words;
  line_chars[l] = n_chars;
  bool newline = line.stop < line.doc_end;
  i64 d = line.doc;
  count(stats, n_docs, d, C_CHARS, n_chars + newline);
  count(stats, n_docs, d, C_NEWLINES, newline);
  count(stats, n_docs, d, C_LINES, 1);
  count(stats, n_docs, d, C_HASHES, hashes);
  count(stats, n_docs, d, C_ELLIPSES, ellipses);
  count(stats, n_docs, d, C_HAN_LETTERS, han);
  count(stats, n_docs, d, C_UNSPACED_LETTERS, unspaced);
  count(stats, n_docs, d, C_DOUBLE_LETTERS, doubles);
  if (words == 0) return;
  atomicMin(&first_word[d], (u64)first);
  atomicMax(&last_word[d], (u64)last);
  count(stats, n_docs, d, C_WORDS, words);
  count(stats, n_docs, d, C_ALPHABETIC_WORDS, alphabetic);
  count(stats, n_docs, d, C_NON_SYMBOL_WORDS, solid_words);
  count(stats, n_docs, d, C_NON_SYMBOL_WORD_CHARS, solid_chars);
  count(stats, n_docs, d, C_NONBLANK_LINES, 1);
  i32 measure = n_chars + han * (HAN_CHARS - 1) + doubles * (DOUBLE_CHARS - 1);
  count(stats, n_docs, d, C_SHORT_LINES, measure <= SHORT_LINE_CHARS);
  count(stats, n_docs, d, C_TERMINAL_LINES, (last_classes & TERMINAL) != 0);
  bool three = first + 3 <= last;
  count(stats, n_docs, d, C_BULLET_LINES, chars[first] == '-' || (three && is_at(chars, first, 0xE2, 0x80, 0xA2)));
  bool ellipsis = three && (is_at(chars, last - 3, '.', '.', '.') || is_at(chars, last - 3, 0xE2, 0x80, 0xA6));
  count(stats, n_docs, d, C_ELLIPSIS_LINES, ellipsis);

  i64 hidden = ((i64)han * HAN_PARTS + (i64)unspaced * UNSPACED_PARTS) / WORD_PARTS;
  if (words + hidden < C4_MIN_LINE_WORDS || long_word) return;
  i64 end = without_citations(chars, first, last);
  Character x = {0, 0, 0};
  while (end > first && ((x = character_before(t, first, end)).classes & KIND) == CLOSING) end -= x.size;
  bool ended = end > first && (x.classes & TERMINAL || x.code == '"' || x.code == '\'');
  if (end - 3 >= first && is_at(chars, end - 3, '.', '.', '.')) ended = false;
  if (phrases & LOREM_IPSUM) {
    count(stats, n_docs, d, C_C4_UNENDED_LOREM_IPSUM_LINES, 1);
    count(stats, n_docs, d, C_C4_LOREM_IPSUM_LINES, ended);
  } else if (phrases & JAVASCRIPT) {
  } else if (brace) {
    count(stats, n_docs, d, C_C4_UNENDED_CURLY_BRACKET_LINES, 1);
    count(stats, n_docs, d, C_C4_CURLY_BRACKET_LINES, ended);
  } else if (!(phrases & POLICY)) {
    i32 sentences = max(s.count + s.initial, 1);
    count(stats, n_docs, d, C_C4_UNENDED_SENTENCES, sentences);
    count(stats, n_docs, d, C_C4_SENTENCES, ended ? sentences : 0);
    count(stats, n_docs, d, C_C4_KEPT_LINES, ended);
    count(stats, n_docs, d, C_C4_KEPT_WORDS, ended ? words : 0);
  }
}

// One thread per line, order[thread]: its hash, and its part of a paragraph.
// part_kind: 0 no part of a paragraph (empty, or beyond the document's words), 1 blank, 2 with words.
extern "C" __global__ void __launch_bounds__(256, 4)
    hash_lines(const u8* __restrict__ chars, i64 size, const i64* __restrict__ offsets, const i64* __restrict__ starts,
               const i64* __restrict__ docs, const i64* __restrict__ order, i64 n_lines,
               const i64* __restrict__ line_offsets, const i32* __restrict__ line_words,
               const u64* __restrict__ first_word, const u64* __restrict__ last_word, u64* __restrict__ line_hash,
               u64* __restrict__ part_hash, i32* __restrict__ part_chars, u8* __restrict__ part_kind) {
  if (global_thread() >= n_lines) return;
  i64 l = order[global_thread()];
  Line line = line_of(l, starts, docs, line_offsets, offsets, chars);
  Hashed whole = hash_bytes(chars, size, line.start, line.stop);
  line_hash[l] = whole.hash;
  i64 first = (i64)first_word[line.doc], last = (i64)last_word[line.doc];  // no words: first is beyond everything
  first = first > line.start ? first : line.start;
  last = least(last, line.stop);
  part_kind[l] = (u8)(first >= last ? 0 : line_words[l] == 0 ? 1 : 2);
  if (first < last && (first > line.start || last < line.stop)) {
    line.start = first;
    line.stop = last;
    whole = hash_bytes(chars, size, first, last);
  }
  part_hash[l] = whole.hash;
  part_chars[l] = (i32)(line.stop - line.start) - (i32)whole.continuations;
}

// One thread per line; the one at the start of a paragraph reads on to its end. paragraph_chars: -1 where none starts.
extern "C" __global__ void __launch_bounds__(256)
    join_paragraphs(const i64* __restrict__ docs, i64 n_lines, const i64* __restrict__ line_offsets, i64 n_docs,
                    const u64* __restrict__ part_hash, const i32* __restrict__ part_chars,
                    const u8* __restrict__ part_kind, u64* __restrict__ paragraph_hash,
                    i32* __restrict__ paragraph_chars, i32* stats) {
  i64 l = global_thread();
  if (l >= n_lines) return;
  i64 d = docs[l];
  paragraph_chars[l] = -1;
  paragraph_hash[l] = 0;
  if (part_kind[l] == 0 || (l > line_offsets[d] && part_kind[l - 1] != 0)) return;
  u64 h = 0;
  i32 n = -1;  // a line end between any two
  bool blank = true;
  for (i64 k = l; k < line_offsets[d + 1] && part_kind[k] != 0; k++) {
    h = h * GOLDEN + part_hash[k];
    n += part_chars[k] + 1;
    blank &= part_kind[k] == 1;
  }
  if (blank) return;
  paragraph_hash[l] = h;
  paragraph_chars[l] = n;
  count(stats, n_docs, d, C_PARAGRAPHS, 1);
}

// --------------------------------------------------------------------------------------------------------------- words
struct Text {
  Chars at;
  const u32* doc_starts;  // mask, as in ops/words
  i64 origin, end;
};
// The character at a lead byte, cut by the end of its document.
DEVICE Character character_in(const Text& t, i64 p) {
  i32 size = sequence_size(t.at.chars[p]);
  bool cut = size == 0 || p + size > t.end || cut_by_document(t.doc_starts, (u64)(p - t.origin), size);
  return character(t.at, p, cut ? p + 1 : t.end);
}
// The 0x80 bit of every byte of v (four ASCII bytes) that is a space: 0x09..0x0D, 0x1C..0x20.
DEVICE u32 ascii_space4(u32 v) {
  u32 controls = (v + 0x77777777u) & ~(v + 0x72727272u), others = (v + 0x64646464u) & ~(v + 0x5F5F5F5Fu);
  return (controls | others) & 0x80808080u;
}

// One thread per 32 bytes: which bytes are spaces, where words start, how many start. Bytes outside the text are spaces.
extern "C" __global__ void __launch_bounds__(256)
    mark_spaces(const u8* __restrict__ chars, const u32* __restrict__ doc_starts, i64 origin, i64 base, i64 end,
                i64 n_groups, const u8* __restrict__ stage1, const u8* __restrict__ stage2, u32* __restrict__ spaces,
                u32* __restrict__ starts, u8* __restrict__ counts) {
  i64 g = global_thread();
  if (g >= n_groups) return;
  Text t = {chars_of(chars, 0, stage1, stage2), doc_starts, origin, end};
  i64 first = origin + 32 * g;
  u32 found = 0, leads = 0;
  if (first >= base && first + 32 <= end) {
    const uint4* quads = (const uint4*)(chars + first);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint4 quad = quads[half];
      u32 v[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
      for (int k = 0; k < 4; k++) {
        int at = 16 * half + 4 * k;
        found |= gather4(ascii_space4(v[k] & 0x7F7F7F7Fu) & ~v[k]) << at;
        leads |= gather4(v[k] & v[k] << 1) << at;
      }
    }
  } else {
#pragma unroll 1
    for (int k = 0; k < 32; k++) {
      i64 p = first + k;
      u32 c = p >= base && p < end ? chars[p] : ' ';
      if (c < 0x80) found |= (ascii_space4(c) >> 7 & 1) << k;
      else if (c >= 0xC0) leads |= 1u << k;
    }
  }
  u32 document = doc_starts[g];
  bool inside = false;  // the byte before is of a word of the same document
  if (!(document & 1) && first > base) {
    i64 q = first - 1;  // the character that holds it may reach into these bytes
    for (int k = 0; k < 2 && continues(chars[q]) && !(doc_starts[(u64)(q - origin) >> 5] >> ((q - origin) & 31) & 1); k++) q--;
    Character x = character_in(t, q);
    bool space = x.classes & SPACE && q + x.size >= first;
    inside = !space;
    if (space && q + x.size > first) found |= (1u << (u32)(q + x.size - first)) - 1;
  }
  for (; leads; leads &= leads - 1) {
    int k = __ffs(leads) - 1;
    Character x = character_in(t, first + k);
    if (x.classes & SPACE) found |= ((1u << x.size) - 1) << k;
  }
  u32 begins = ~found & (found << 1 | (u32)!inside | document);
  spaces[g] = found;
  starts[g] = begins;
  counts[g] = (u8)__popc(begins);
}

// A warp takes 32 mask words, 1 KB of text: their word starts go to shared memory, then each lane hashes every 32nd word.
// `spaces` has two words of ones more than the text needs.
extern "C" __global__ void __launch_bounds__(256, 4)
    hash_words(const u8* __restrict__ chars, i64 size, const u32* __restrict__ doc_starts, i64 origin, i64 n_groups,
               const i64* __restrict__ offsets, i64 n_docs, const u32* __restrict__ spaces,
               const u32* __restrict__ starts, const i64* __restrict__ before, u64* __restrict__ word_hash,
               u32* __restrict__ word_chars, i32* __restrict__ word_doc, u32* stop_found) {
  const u64 stop_words[] = {STOP_WORD_HASHES};
  __shared__ unsigned short place[8][1024];
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
  i64 doc = 0;
  for (u32 j = lane; j < total; j += 32) {
    u64 i = 32 * (u64)first + place[warp][j], stop = i;
    for (;;) {  // a space or another document ends the word
      u64 w = stop >> 5;
      u32 s = (u32)stop & 31, starting = __funnelshift_r(doc_starts[w], doc_starts[w + 1], s);
      u32 ends = __funnelshift_r(spaces[w], spaces[w + 1], s) | (stop == i ? starting & ~1u : starting);
      if (ends) {
        stop += __ffs(ends) - 1;
        break;
      }
      stop += 32;
    }
    i64 p = origin + (i64)i, end = origin + (i64)stop;
    Hashed word = hash_bytes(chars, size, p, end);
    if (offsets[doc + 1] <= p) {  // the last document that starts at or before p
      i64 high = n_docs - 1;
      while (doc < high) {
        i64 middle = (doc + high + 1) >> 1;
        if (offsets[middle] <= p) doc = middle;
        else high = middle - 1;
      }
    }
    u32 found = 0;
#pragma unroll
    for (i32 k = 0; k < (i32)(sizeof(stop_words) / sizeof(u64)); k++) found |= (u32)(word.hash == stop_words[k]) << k;
    if (found) atomicOr(&stop_found[doc], found);
    i64 w = before[first] + j;
    word_hash[w] = word.hash;
    word_chars[w] = (u32)(end - p) - word.continuations;
    word_doc[w] = (i32)doc;
  }
}

// --------------------------------------------------------------------------------------------------------- comparisons
// Slots of a document whose items are first .. last - 1: table[2 * first .. 2 * last - 1].
DEVICE u64 first_slot(u64 key, i64 n_items) { return __umul64hi(key * 0xC2B2AE3D27D4EB4Full, (u64)(2 * n_items)); }

// One thread per item (a line or paragraph with chars >= 0): the first of equal items ends up in their slot.
extern "C" __global__ void __launch_bounds__(256)
    insert_items(const u64* __restrict__ hashes, const i32* __restrict__ chars, const i64* __restrict__ docs, i64 n_items,
                 const i64* __restrict__ item_offsets, u32* table, u32* __restrict__ slots) {
  i64 i = global_thread();
  if (i >= n_items || chars[i] < 0) return;
  i64 first = item_offsets[docs[i]], n = item_offsets[docs[i] + 1] - first;
  u32* region = table + 2 * first;
  u32 me = (u32)(i - first);
  u64 slot = first_slot(hashes[i], n);
  for (;; slot = slot + 1 < 2 * (u64)n ? slot + 1 : 0) {
    u32 other = atomicCAS(&region[slot], NOTHING, me);
    if (other == NOTHING) break;
    if (hashes[first + other] == hashes[i]) {
      atomicMin(&region[slot], me);
      break;
    }
  }
  slots[i] = (u32)slot;
}
// One thread per item: count those that an equal one precedes.
extern "C" __global__ void __launch_bounds__(256)
    count_duplicates(const i32* __restrict__ chars, const i64* __restrict__ docs, i64 n_items,
                     const i64* __restrict__ item_offsets, const u32* __restrict__ table,
                     const u32* __restrict__ slots, i32 row, i64 n_docs, i32* stats) {
  i64 i = global_thread();
  if (i >= n_items || chars[i] < 0) return;
  i64 first = item_offsets[docs[i]];
  if (table[2 * first + slots[i]] == (u32)(i - first)) return;
  count(stats, n_docs, docs[i], row, 1);
  count(stats, n_docs, docs[i], row + 1, chars[i]);
}

// n-grams, one n after the other. heads[i]: where the (n-1)-gram at word i occurs first in its document.
// An n-gram is told by (head, its last word); for n = 2 by its two words. Positions are relative to the document.
DEVICE bool same_ngram(const u64* __restrict__ words, const u32* __restrict__ heads, i64 a, i64 b, i32 n) {
  return words[a + n - 1] == words[b + n - 1] && (n == 2 ? words[a] == words[b] : heads[a] == heads[b]);
}
// One thread per candidate `where[k]` (n = 2: every word).
extern "C" __global__ void __launch_bounds__(256)
    insert_ngrams(const u64* __restrict__ words, const u32* __restrict__ heads, const i32* __restrict__ word_doc,
                  const i64* __restrict__ word_offsets, const i64* __restrict__ where, i64 n_candidates, i32 n,
                  u32* table, u32* __restrict__ slots, i32* __restrict__ times) {
  i64 k = global_thread();
  if (k >= n_candidates) return;
  i64 i = n == 2 ? k : where[k];
  i64 first = word_offsets[word_doc[i]], size = word_offsets[word_doc[i] + 1] - first;
  times[i] = 0;
  if (i + n > first + size) return;
  u32* region = table + 2 * first;
  u32 me = (u32)(i - first);
  u64 head = n == 2 ? words[i] : heads[i], slot = first_slot(head * GOLDEN + words[i + n - 1], size);
  for (;; slot = slot + 1 < 2 * (u64)size ? slot + 1 : 0) {
    u32 other = atomicCAS(&region[slot], NOTHING, me);
    if (other == NOTHING) break;
    if (same_ngram(words, heads, first + other, i, n)) {
      atomicMin(&region[slot], me);
      break;
    }
  }
  slots[i] = (u32)slot;
}
// One thread per candidate: where its n-gram occurs first, and how often.
extern "C" __global__ void __launch_bounds__(256)
    count_ngrams(const i32* __restrict__ word_doc, const i64* __restrict__ word_offsets, const i64* __restrict__ where,
                 i64 n_candidates, i32 n, const u32* __restrict__ table, const u32* __restrict__ slots,
                 u32* __restrict__ new_heads, i32* times) {
  i64 k = global_thread();
  if (k >= n_candidates) return;
  i64 i = n == 2 ? k : where[k];
  i64 first = word_offsets[word_doc[i]];
  if (i + n > word_offsets[word_doc[i] + 1]) return;
  u32 head = table[2 * first + slots[i]];
  new_heads[i] = head;
  atomicAdd(&times[first + head], 1);
}
// One thread per candidate: does its n-gram repeat? Empties the table. best: the most frequent n-gram of each document,
// (times, earliest) packed.
extern "C" __global__ void __launch_bounds__(256)
    keep_repeated(const i32* __restrict__ word_doc, const i64* __restrict__ word_offsets,
                  const i64* __restrict__ where, i64 n_candidates, i32 n, u32* __restrict__ table,
                  const u32* __restrict__ slots, const u32* __restrict__ new_heads, const i32* __restrict__ times,
                  u8* __restrict__ repeated, u64* best) {
  i64 k = global_thread();
  if (k >= n_candidates) return;
  i64 i = n == 2 ? k : where[k];
  i64 d = word_doc[i], first = word_offsets[d];
  repeated[k] = 0;
  if (i + n > word_offsets[d + 1]) return;
  u32 head = new_heads[i];
  i32 count = times[first + head];
  repeated[k] = count > 1;
  if (head != (u32)(i - first)) return;
  table[2 * first + slots[i]] = NOTHING;
  if (count > 1) atomicMax(&best[d], (u64)count << 32 | (NOTHING - head));
}
DEVICE i64 ngram_chars(const u32* __restrict__ word_chars, i64 i, i32 n) {
  i64 sum = 0;
  for (i32 k = 0; k < n; k++) sum += word_chars[i + k];
  return sum;
}
// One thread per document: until an n-gram repeats, the most frequent is the first one. `row` is that of n = 2.
extern "C" __global__ void __launch_bounds__(256)
    start_ngrams(const i64* __restrict__ word_offsets, i64 n_docs, const u32* __restrict__ word_chars, i32 max_n, i32 row,
                 i32* __restrict__ stats) {
  i64 d = global_thread();
  if (d >= n_docs) return;
  i64 first = word_offsets[d], size = word_offsets[d + 1] - first;
  for (i32 n = 2; n <= max_n && n <= size; n++)
    stats[(row + n - 2) * n_docs + d] = (i32)(ngram_chars(word_chars, first, n) + n - 1);
}
// One thread per document: occurrences times length of its most frequent n-gram, if it repeats; row -1: only that it does.
extern "C" __global__ void __launch_bounds__(256)
    weigh_best(const u64* __restrict__ best, i64 n_docs, const i64* __restrict__ word_offsets,
               const u32* __restrict__ word_chars, i32 n, i32 row, i32* __restrict__ stats) {
  i64 d = global_thread();
  if (d >= n_docs || best[d] == 0) return;
  stats[C_LONGEST_REPEATED_N_GRAM * n_docs + d] = n;
  if (row < 0) return;
  i64 at = word_offsets[d] + (NOTHING - (u32)best[d]), count = (i64)(best[d] >> 32);
  i64 chars = stats[C_CHARS * n_docs + d];
  stats[row * n_docs + d] = (i32)least(count * (ngram_chars(word_chars, at, n) + n - 1), chars);
}
// One thread per document: walk over its repeated n-grams; times becomes -1 where the walk has stopped.
// A document that repeats itself through and through costs about a third of a microsecond a word and n.
extern "C" __global__ void __launch_bounds__(256)
    walk_duplicates(const i64* __restrict__ where, const i64* __restrict__ where_offsets, i64 n_docs,
                    const i64* __restrict__ word_offsets, const u32* __restrict__ word_chars,
                    const u32* __restrict__ heads, i32 n, i32 row, i32* __restrict__ times, i32* __restrict__ stats) {
  i64 d = global_thread();
  if (d >= n_docs) return;
  i64 total = 0, resume = 0;
  for (i64 k = where_offsets[d]; k < where_offsets[d + 1]; k++) {
    i64 i = where[k];
    if (i < resume) continue;
    i32* seen = &times[word_offsets[d] + heads[i]];
    if (*seen < 0) {
      total += ngram_chars(word_chars, i, n);
      resume = i + n;
    } else {
      *seen = -1;
    }
  }
  stats[row * n_docs + d] = (i32)total;
}
