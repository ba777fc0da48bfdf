r"""Text to token ids: the ids of the reference library, at the speed of the fastest library that gives the same ones.

The reference is `tokenizers` for a tokenizer.json and `tiktoken` for a tiktoken encoding. The fast libraries are not
trusted: before a run, `load` encodes a set of awkward texts with the reference and with each of them, and takes the first
whose ids are equal.

Special tokens are inert: `<|endoftext|>` written in a document is encoded as the characters it consists of, so the
end-of-text id stands only where the tokens stage puts it. Truncation, padding, BPE dropout and post-processors (BOS, EOS)
of a tokenizer.json never apply.

One process, one thread: `load` and every encoding set RAYON_NUM_THREADS=1 and TOKENIZERS_PARALLELISM=false, and no call
waits for a thread pool that a fork has lost. Processes are the engine's business.

# D documents, N tokens
"""
