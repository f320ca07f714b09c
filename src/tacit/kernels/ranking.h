// What auctions and choices share: ragged arrays, and the rank of each score among the others of its auction.

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "wide.h"

namespace nb = nanobind;

namespace {

using Whole = std::int64_t;
using Word = std::uint64_t;

constexpr Index COUNTED = 160;  // up to so many scores, counting who is above whom beats sorting

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// As `run` in wide.h, but subnormal numbers stay what they are: scores of 0 and 5e-324 are no tie, as in NumPy.
template <class Body>
void run_keeping_subnormals(bool wide, const Body& body) {
#if HAS_WIDE
    if (wide && machine_is_wide()) return run_wide(body);
#endif
    (void)wide;
    body();
}

// Room for the largest auction, made once a call.
struct Scratch {
    std::vector<double> score, work;
    std::vector<Whole> row, rank, order;
    explicit Scratch(Index size) : score(size), work(size), row(size), rank(size), order(size) {}
};

Index largest(const Whole* offsets, Index count) {
    Whole most = 0;
    for (Index i = 0; i < count; ++i) most = std::max(most, offsets[i + 1] - offsets[i]);
    return static_cast<Index>(most);
}

// rank[i]: how many scores go before score i, the highest first and ties in the order given.
INLINE void ranks_of(const double* __restrict score, Index size, Whole* __restrict rank, Whole* __restrict order) {
    if (size <= COUNTED) {
        for (Index i = 0; i < size; ++i) rank[i] = 0;
        for (Index i = 0; i < size; ++i) {
            Whole above = 0;
            const double own = score[i];
            for (Index j = i + 1; j < size; ++j) {
                const Whole higher = score[j] > own;
                above += higher;
                rank[j] += 1 - higher;
            }
            rank[i] += above;
        }
        return;
    }
    std::iota(order, order + size, 0);
    std::stable_sort(order, order + size, [&](Whole i, Whole j) { return score[i] > score[j]; });
    for (Index r = 0; r < size; ++r) rank[order[r]] = r;
}

}  // namespace
