"""Published ad logs and their generators, read as streams and encoded to memory-mapped columns.

logs/           definitions of logs, published or your own in TOML: columns, layouts, rules, published figures
generators/     the same logs generated from a stated model, calibrated to those figures
reading/        a file to typed blocks; bad rows are counted, with their line numbers
encoding/       typed blocks to the whole numbers that training reads
preparation     all of it in one pass: a file in, columns out
columns         the encoded log on disk: memory-mapped columns, and their writer
splits          which rows train, validate and test
description     statistics of a log beside the published ones
comparison      a made-up log beside a file: the figures of both, and what each field tells
value_counts    exact counts of values in bounded memory
synthetic       generated logs on disk, marked so that `is_synthetic` tells them
frames          frames of pandas, Polars, Arrow, DuckDB, NumPy as encoded rows; frame_roles: what columns are
folders         manifests and arrays on disk, checked before use
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.data.columns import Columns
    from tacit.data.description import LogDescription, describe
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.encoding.learned_encoding import LearnedEncoding, SelectionPayment
    from tacit.data.generators.markets import Market, made_up_auctions
    from tacit.data.generators.worlds import world
    from tacit.data.logs.definition import Log, find_log, load_log
    from tacit.data.preparation import PreparedLog, hashing_encoder, prepare
    from tacit.data.reading.reader import LogReader
    from tacit.data.splits import LogSplit, RowSet
    from tacit.data.synthetic import LogDestination, is_synthetic, write_log
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "columns": "Columns",
            "description": "LogDescription describe",
            "encoding.encoder": "Encoder",
            "encoding.learned_encoding": "LearnedEncoding SelectionPayment",
            "generators.markets": "Market made_up_auctions",
            "generators.worlds": "world",
            "logs.definition": "Log find_log load_log",
            "preparation": "PreparedLog hashing_encoder prepare",
            "reading.reader": "LogReader",
            "splits": "LogSplit RowSet",
            "synthetic": "LogDestination is_synthetic write_log",
        },
    )

__all__ = [
    "Columns", "Encoder", "LearnedEncoding", "Log", "LogDescription", "LogDestination", "LogReader",
    "LogSplit", "Market", "PreparedLog", "RowSet", "SelectionPayment", "describe", "find_log",
    "hashing_encoder", "is_synthetic", "load_log", "made_up_auctions", "prepare", "world", "write_log",
]  # fmt: skip
