"""Score the texts of a Parquet file and say what published filters would drop: python score_a_parquet_file.py [FILE [COLUMN]]"""

import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import gpu_curate as gc

PAGE = (
    "The museum opened in 1912 and has been free to visit since the end of the war. It holds the letters of the "
    "founder. Most of the rooms were built with money of the town. That is why they have its arms over the doors. "
    "The garden is open to all visitors. It closes when the sun sets, and it is lit on the first day of the year. "
    "Whoever comes by train can walk, since the station lies at the other end of the park with the old trees.\n"
)
TEXTS = [PAGE, "buy now buy now buy now buy now\n" * 30, "# # # ..."]

if __name__ == "__main__":
    table = pq.read_table(sys.argv[1]) if sys.argv[1:] else pa.table({"text": TEXTS})
    column = sys.argv[2] if sys.argv[2:] else "text"

    scores = gc.score(table, text_column=column)  # once; what follows only compares numbers
    for families in (["gopher_quality"], ["gopher_quality", "gopher_repetition"], ["fineweb"]):
        print(", ".join(families), gc.decide(scores, families))

    mine = gc.decide(scores, {"gopher_quality": {"min_words": 60, "min_stop_words": 3}})
    print("first failing rule of the first texts:", mine.rule[:5].tolist())
    print("longest text:", pc.max(scores["chars"]), "characters")
    table = table.append_column("keep", pa.array(mine.keep)).append_column("words", scores["words"])
    pq.write_table(table, "scored.parquet")
