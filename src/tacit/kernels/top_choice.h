// Top-m randomized response for one request, from one word, by private scores in public order.

#pragma once

#include "ranking.h"

namespace {

INLINE Index best_of(const double* score, Index size) {
    Index best = 0;
    for (Index i = 1; i < size; ++i) best = score[i] > score[best] ? i : best;
    return best;
}

// Where a word falls when only the candidate at `best` has `high` words, and every other one `low`.
INLINE Index block_around(Index best, Index size, Word low, Word high, Word word) {
    if (!low) return best;
    const auto before = static_cast<Word>(best), after = static_cast<Word>(size - 1 - best);
    const Word first = before * low, past = word - first;  // wraps where the word falls before
    if (past < high || (word >= first && !after)) return best;  // nearly always, and without a division
    if (word < first) return static_cast<Index>(word / low);
    return best + 1 + static_cast<Index>(std::min((past - high) / low, after - 1));
}

// Where it falls when the privately best `top` have `high`; the first `spare` have a word more.
INLINE Index block_of(const Whole* rank, Index size, Whole top, Word low, Word high, Whole spare, Word word) {
    Index found = 0;
    Word end = 0;
    for (Index i = 0; i + 1 < size; ++i) {
        end += (rank[i] < top ? high : low) + (i < spare);
        found += end <= word;
    }
    return found;
}

// The place of a word among the first `kept`, of whom the privately best `top` have `high` words each.
struct TopLaw {
    Whole kept, top, spare;
    Word low, high;

    INLINE Whole place(const double* score, Word word, Scratch& scratch) const {
        if (kept <= 1) return kept - 1;  // the only one, or none
        if (top == 1) return block_around(best_of(score, kept), kept, low, high, word);
        ranks_of(score, kept, scratch.rank.data(), scratch.order.data());
        return block_of(scratch.rank.data(), kept, top, low, high, spare, word);
    }
};

}  // namespace
