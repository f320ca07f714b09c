"""Made `tokens_v1.json`: what values of a field become, by the slow NumPy twin of the kernel.

    python tests/vectors/make_tokens_v1.py > tests/vectors/tokens_v1.json

Changing one of these breaks every encoder that was saved, and every key that two parties compare.
"""

from __future__ import annotations

import json

import numpy as np

from tacit.kernels import reference

VALUES, MISSING = 1, 2
FIELDS = ("C1", "user", "a field with a long name", "größe")
TEXTS = ("", "0", "17", "-1", "a", "68fd1e64", "68fd1e65", "NULL", "Food>Café", "x" * 8, "x" * 9, "x" * 40)
BYTES = ("00", "0000", "ff", "00ff00ff00ff00ff00")
NUMBERS = (0, 1, -1, 17, 10**18, 2**63 - 1, -(2**63))


def fingerprint(text: bytes, seed: int) -> int:
    out = np.empty(1, dtype=np.uint64)
    offsets = np.array([0, len(text)], dtype=np.int32)
    reference.text_fingerprints(offsets, np.frombuffer(text, dtype=np.uint8), seed, out)
    return int(out[0])


def main() -> None:
    fields = []
    for name in FIELDS:
        seed = fingerprint(name.encode(), VALUES)
        fields.append(
            {
                "field": name,
                "missing": f"{fingerprint(name.encode(), MISSING):016x}",
                "texts": {text: f"{fingerprint(text.encode(), seed):016x}" for text in TEXTS},
                "bytes": {text: f"{fingerprint(bytes.fromhex(text), seed):016x}" for text in BYTES},
                "numbers": {str(n): f"{fingerprint(str(n).encode(), seed):016x}" for n in NUMBERS},
            }
        )
    print(json.dumps({"version": 1, "fields": fields}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
