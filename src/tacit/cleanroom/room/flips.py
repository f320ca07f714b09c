"""Labels as the modes that flip may see them: each flipped once, the same whenever it is read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.room.labels import LabelTable, Records
from tacit.cleanroom.wire.agreement import Terms
from tacit.privacy.mechanisms.memoised import FlipKey, flip_tokens


def flipped(table: LabelTable, records: Records, task: str, terms: Terms, secret: bytes) -> NDArray[np.uint8]:
    """The flipped label of each record, (n,). A record that is not in the table has the label 0, and a flip.

    Guarantee:  pure epsilon-DP for all labels of one record, epsilon = terms.epsilon, by all that is ever
                computed from these flips, in any number of steps, runs, codecs, losses, metrics and restarts.
    Neighbours: replace label, for one record: its labels of all tasks, each flipped with epsilon / tasks.
    Assumes:    what `memoised.flip_tokens` does. A record is flipped under the task, the window, the label
                version and the response's exact weights: terms that change one of these are another release.
    Source:     Warner 1965; memoised: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), section 3.2.
    """
    key = FlipKey(task, terms.window, terms.label_version)
    truth = table.look_up(records, task)
    return flip_tokens(truth, records, key, terms.response, secret).astype(np.uint8)
