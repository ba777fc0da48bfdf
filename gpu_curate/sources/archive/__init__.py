"""Records of WARC and ARC files, as a stream that survives damage.

fastwarc 2.0 and warcio 1.8 were tried: the first ends at a bad record header or an ARC file and takes a cut file for a
whole one, the second reads neither .lz4 nor .zst and stops at a gzip file of one member or a wrong length. The formats
are small, and what a curator needs (every record counted, the byte where a file was cut, the records after a damaged
one) is decided in the framing, so the framing is here. Decompression is the libraries'.

Formats: https://iipc.github.io/warc-specifications (WARC 1.0, 1.1, zstd), Internet Archive's ARC 1 and 2.
"""
