// One auction by its public columns: who stays, in which order, at what price. Nothing private is known here.

#pragma once

#include <cmath>
#include <limits>

#include "ranking.h"

namespace {

constexpr Whole EMPTY = -1, RESERVE = -2;  // rows that are no candidate's: the empty slot, and the reserve price

struct Pricing {
    bool first, per_event;
    double reserve, keep;  // keep: 1 - gamma
    double empty;          // the worth of an empty slot; NaN where abstaining is no candidate
};

// Those who stay, best public score first, and what sets the price of the last of them.
struct Order {
    const double* score;
    const Whole* row;
    Index size;
    double last_due;
    Whole last_setter;
    bool empty_last;  // the empty slot follows them: cut by its score, but always there
};

// Whole micros, rounded down: never above the bid, and never above the score that it stands for.
INLINE Whole price_of(const Pricing& rule, double due, double rate, Whole bid) {
    if (!rule.per_event) return static_cast<Whole>(due);
    if (rule.first) return bid;
    if (!(rate > 0)) return 0;
    const double each = due / rate;
    return each < static_cast<double>(bid) ? static_cast<Whole>(each) : bid;
}

struct Price {
    Whole micros, setter;
};

// The price of the one at this rank, who is not the empty slot: by the next one down, if that reaches the reserve.
INLINE Price price_at(const Pricing& rule, const Order& order, Index rank, const Whole* bid, const double* rate) {
    const Whole place = order.row[rank];
    if (rule.first) return {price_of(rule, order.score[rank], rate[place], bid[place]), place};
    const Index next = rank + 1 < order.size ? rank + 1 : rank;  // selects: who is chosen cannot be guessed
    const bool follows = (next > rank) & (order.score[next] >= rule.reserve);
    const double due = follows ? order.score[next] : order.last_due;
    const Whole setter = follows ? order.row[next] : order.last_setter;
    return {price_of(rule, due, rate[place], bid[place]), setter};
}

// Few scores, padded to a fixed number and counted: no branch for the processor to guess wrong.
template <int SIZE>
INLINE void place_few(const double* score, const Whole* row, double* to_score, Whole* to_row) {
    Whole rank[SIZE] = {};
    for (int i = 0; i < SIZE; ++i)
        for (int j = i + 1; j < SIZE; ++j) {
            const Whole higher = score[j] > score[i];
            rank[i] += higher;
            rank[j] += 1 - higher;
        }
    for (int i = 0; i < SIZE; ++i) to_score[rank[i]] = score[i], to_row[rank[i]] = row[i];
}

INLINE void place(double* score, Whole* row, Index size, Scratch& scratch) {
    double* to_score = scratch.work.data();
    Whole* to_row = scratch.order.data();
    if (size <= 8) {
        for (Index i = size; i < 8; ++i) score[i] = -1.0;  // below all
        return size <= 4 ? place_few<4>(score, row, to_score, to_row) : place_few<8>(score, row, to_score, to_row);
    }
    Whole* rank = scratch.rank.data();
    ranks_of(score, size, rank, to_row);
    for (Index i = 0; i < size; ++i) to_score[rank[i]] = score[i], to_row[rank[i]] = row[i];
}

// As `order_of`, for up to SIZE candidates and no empty slot: all are ranked, whoever stays is above the rest, and the
// best of the rest follows them. Loops of a fixed length, since how many stay cannot be guessed.
template <int SIZE>
INLINE Order order_of_few(const Whole* bid, const double* rate, Whole begin, Whole end, const Pricing& rule,
                          Scratch& scratch) {
    double score[SIZE], best = 0.0;
    Whole row[SIZE];
    for (int i = 0; i < SIZE; ++i) {
        const bool there = begin + i < end;
        const Whole at = there ? begin + i : begin;
        const double own = static_cast<double>(bid[at]) * rate[at];
        row[i] = at, score[i] = there ? own : -std::numeric_limits<double>::infinity();
        best = score[i] > best ? score[i] : best;
    }
    const double least = best * rule.keep, both = least > rule.reserve ? least : rule.reserve;
    Index stay = 0;
    for (int i = 0; i < SIZE; ++i) stay += score[i] >= both;
    double* to_score = scratch.work.data();
    Whole* to_row = scratch.order.data();
    place_few<SIZE>(score, row, to_score, to_row);
    const Index next = stay < SIZE ? stay : SIZE - 1;
    const bool leads = (next == stay) & (to_score[next] >= rule.reserve);
    return {to_score, to_row, stay, leads ? to_score[next] : rule.reserve, leads ? to_row[next] : RESERVE, false};
}

// Rank one auction by its public columns. Only those who stay need an order; of the others, the best may set the
// last price.
INLINE Order order_of(const Whole* bid, const double* rate, Whole begin, Whole end, const Pricing& rule,
                      Scratch& scratch) {
    double* score = scratch.score.data();
    Whole* row = scratch.row.data();
    const bool abstains = !std::isnan(rule.empty);
    if (!abstains && begin < end && end - begin <= 4) return order_of_few<4>(bid, rate, begin, end, rule, scratch);
    if (!abstains && begin < end && end - begin <= 8) return order_of_few<8>(bid, rate, begin, end, rule, scratch);
    double best = abstains ? rule.empty : 0.0;
    for (Whole at = begin; at < end; ++at) {
        const double own = static_cast<double>(bid[at]) * rate[at];
        score[at - begin] = own;
        best = own > best ? own : best;
    }
    const double least = best * rule.keep, both = least > rule.reserve ? least : rule.reserve;
    double next = rule.reserve;
    Whole from = RESERVE;
    Index stay = 0;
    for (Whole at = begin; at < end; ++at) {
        const double own = score[at - begin];
        const bool stays = own >= both;
        const bool leads = (!stays) & ((own > next) | ((own == next) & (from == RESERVE)));
        next = leads ? own : next, from = leads ? at : from;
        score[stay] = own, row[stay] = at;
        stay += stays;
    }
    const bool last = abstains && rule.empty < least;
    if (abstains && !last) score[stay] = rule.empty, row[stay++] = EMPTY;
    if (last && (rule.empty > next || (rule.empty == next && from == RESERVE))) next = rule.empty, from = EMPTY;
    place(score, row, stay, scratch);
    return {scratch.work.data(), scratch.order.data(), stay, next, from, last};
}

}  // namespace
