// Auctions over ragged arrays: rank, price and cut by public columns alone; what was shown, and its bill.
// `reference_auctions.py` says the same in NumPy, `auctions.py` what each argument is and checks it.
//
// Auction i has the candidates offsets[i] to offsets[i + 1].

#include "pricing.h"
#include "top_choice.h"

namespace {

Whole rank_and_price(Flat<const Whole> offsets, Flat<const Whole> bids, Flat<const double> rates, bool first,
                     bool per_event, double reserve, double keep, double empty, Flat<Whole> kept_offsets,
                     Flat<Whole> rows, Flat<double> scores, Flat<Whole> prices, Flat<Whole> setters, bool wide) {
    const auto count = static_cast<Index>(offsets.shape(0)) - 1;
    const Whole *start = offsets.data(), *bid = bids.data();
    const double* rate = rates.data();
    Whole *kept = kept_offsets.data(), *row = rows.data(), *price = prices.data(), *setter = setters.data();
    double* score = scores.data();
    const Pricing rule{first, per_event, reserve, keep, empty};
    Scratch scratch(std::max<Index>(largest(start, count) + 1, 8));
    nb::gil_scoped_release free;
    Whole at = 0;
    kept[0] = 0;
    run_keeping_subnormals(wide, [&]() INLINE_LAMBDA {
        for (Index i = 0; i < count; ++i) {
            const Order order = order_of(bid, rate, start[i], start[i + 1], rule, scratch);
            for (Index r = 0; r < order.size; ++r, ++at) {
                const bool nobody = order.row[r] == EMPTY;
                const Price due = nobody ? Price{0, EMPTY} : price_at(rule, order, r, bid, rate);
                row[at] = order.row[r], score[at] = order.score[r], price[at] = due.micros, setter[at] = due.setter;
            }
            if (order.empty_last) row[at] = EMPTY, score[at] = empty, price[at] = 0, setter[at++] = EMPTY;
            kept[i + 1] = at;
        }
    });
    return at;
}

// All of it for each auction: rank by public columns, choose by private rates, price what was chosen. The law of an
// auction is the row of its number of candidates. Says how many show something, or -1 where a law is lacking.
Whole run_auctions(Flat<const Whole> offsets, Flat<const Whole> bids, Flat<const double> rates, bool first,
                   bool per_event, double reserve, double keep, double empty, Flat<const double> private_rates,
                   Flat<const Whole> kept, Flat<const Whole> top, Flat<const Word> low_weight,
                   Flat<const Word> high_weight, Flat<const Whole> spare_words, Flat<const Word> words,
                   Flat<Whole> shown_row, Flat<Whole> shown_price, Flat<Whole> shown_rank, Flat<Whole> shown_setter,
                   bool wide) {
    const auto count = static_cast<Index>(offsets.shape(0)) - 1, laws = static_cast<Index>(kept.shape(0));
    const Whole *start = offsets.data(), *bid = bids.data(), *k = kept.data(), *m = top.data();
    const Whole* spare = spare_words.data();
    const double *rate = rates.data(), *hidden = private_rates.data();
    const Word *low = low_weight.data(), *high = high_weight.data(), *word = words.data();
    Whole *place = shown_row.data(), *due = shown_price.data(), *rank = shown_rank.data(), *from = shown_setter.data();
    const Pricing rule{first, per_event, reserve, keep, empty};
    const Index room = std::max<Index>(largest(start, count) + 1, 8);
    Scratch scratch(room), choosing(room);
    const bool abstains = !std::isnan(empty);
    Whole found = 0;
    nb::gil_scoped_release free;
    run_keeping_subnormals(wide, [&]() INLINE_LAMBDA {
        for (Index i = 0; i < count; ++i) {
            const Order order = order_of(bid, rate, start[i], start[i + 1], rule, scratch);
            const Index size = order.size + order.empty_last;
            if (size >= laws || k[size] > size || (size && !k[size])) {
                found = -1;
                break;
            }
            double* score = choosing.score.data();
            const TopLaw law{k[size], m[size], spare[size], low[size], high[size]};
            Whole chosen = -1;
            if (!abstains && size && size <= 4 && law.top == 1) {
                for (Index r = 0; r < 4; ++r) {
                    const Whole at = order.row[r < size ? r : 0];
                    const double own = static_cast<double>(bid[at]) * hidden[at];
                    score[r] = r < law.kept ? own : -std::numeric_limits<double>::infinity();
                }
                chosen = block_around(best_of(score, 4), law.kept, law.low, law.high, word[i]);
            } else {
                for (Index r = 0; r < order.size; ++r) {
                    const Whole at = order.row[r];
                    score[r] = at == EMPTY ? empty : static_cast<double>(bid[at]) * hidden[at];
                }
                if (order.empty_last) score[order.size] = empty;
                chosen = law.place(score, word[i], choosing);
            }
            if (chosen < 0 || chosen >= order.size || order.row[chosen] == EMPTY) continue;
            const Price price = price_at(rule, order, chosen, bid, rate);
            place[found] = order.row[chosen], due[found] = price.micros;
            rank[found] = chosen, from[found++] = price.setter;
        }
    });
    return found;
}

// bid x rate of each row that is offered; `empty` for the empty slot.
void take_scores(Flat<const Whole> rows, Flat<const Whole> bids, Flat<const double> rates, double empty,
                 Flat<double> scores) {
    const auto count = static_cast<Index>(rows.shape(0));
    const Whole *row = rows.data(), *bid = bids.data();
    const double* rate = rates.data();
    double* out = scores.data();
    nb::gil_scoped_release free;
    for (Index i = 0; i < count; ++i)
        out[i] = row[i] == EMPTY ? empty : static_cast<double>(bid[row[i]]) * rate[row[i]];
}

// What is shown of what was offered and chosen: row, price, rank and setter. Says how many.
Whole shown(Flat<const Whole> offsets, Flat<const Whole> chosen, Flat<const Whole> rows, Flat<const Whole> prices,
            Flat<const Whole> setters, Flat<Whole> shown_row, Flat<Whole> shown_price, Flat<Whole> shown_rank,
            Flat<Whole> shown_setter) {
    const auto count = static_cast<Index>(chosen.shape(0));
    const Whole *start = offsets.data(), *choice = chosen.data(), *row = rows.data(), *price = prices.data();
    const Whole* setter = setters.data();
    Whole *place = shown_row.data(), *due = shown_price.data(), *rank = shown_rank.data(), *from = shown_setter.data();
    Whole found = 0;
    nb::gil_scoped_release free;
    for (Index i = 0; i < count; ++i) {
        if (choice[i] < 0) continue;
        if (choice[i] >= start[i + 1] - start[i]) return -1;
        const Whole at = start[i] + choice[i];
        place[found] = row[at], due[found] = price[at], rank[found] = choice[i], from[found] = setter[at];
        found += row[at] != EMPTY;
    }
    return found;
}

// Whether all values are in low..high; NaN is not.
bool all_within(Flat<const double> values, double low, double high) {
    const auto count = static_cast<Index>(values.shape(0));
    const double* value = values.data();
    Whole outside = 0;
    nb::gil_scoped_release free;
    run_keeping_subnormals(true, [&]() INLINE_LAMBDA {
        const double *first = value, lowest = low, highest = high;  // locals, so that nothing can alias
        Whole found = 0;
        for (Index i = 0; i < count; ++i) {
            const Whole under = first[i] >= lowest ? 0 : 1, over = first[i] <= highest ? 0 : 1;  // 1 for NaN
            found += under + over;
        }
        outside = found;
    });
    return !outside;
}

// False where a total would not fit; the totals are then of no use.
bool add_by_code(Flat<const Whole> codes, Flat<const Whole> amounts, Flat<Whole> totals) {
    const auto count = static_cast<Index>(codes.shape(0));
    const Whole *code = codes.data(), *amount = amounts.data();
    Whole* total = totals.data();
    nb::gil_scoped_release free;
    for (Index i = 0; i < count; ++i)
        if (__builtin_add_overflow(total[code[i]], amount[i], &total[code[i]])) return false;
    return true;
}

}  // namespace

NB_MODULE(_auctions, module) {
    using nb::arg;
    const auto offsets = arg("offsets").noconvert(), bids = arg("bids").noconvert(), rates = arg("rates").noconvert();
    const auto rows = arg("rows").noconvert(), scores = arg("scores").noconvert();
    const auto prices = arg("prices").noconvert(), setters = arg("setters").noconvert();
    module.def("rank_and_price", &rank_and_price, offsets, bids, rates, arg("first"), arg("per_event"),
               arg("reserve"), arg("keep"), arg("empty"), arg("kept_offsets").noconvert(), rows, scores, prices,
               setters, arg("wide") = true);
    module.def("run_auctions", &run_auctions, offsets, bids, rates, arg("first"), arg("per_event"), arg("reserve"),
               arg("keep"), arg("empty"), arg("private_rates").noconvert(), arg("kept").noconvert(),
               arg("top").noconvert(), arg("low_weight").noconvert(), arg("high_weight").noconvert(),
               arg("spare_words").noconvert(), arg("words").noconvert(), arg("shown_row").noconvert(),
               arg("shown_price").noconvert(), arg("shown_rank").noconvert(), arg("shown_setter").noconvert(),
               arg("wide") = true);
    module.def("take_scores", &take_scores, rows, bids, rates, arg("empty"), scores);
    module.def("shown", &shown, offsets, arg("chosen").noconvert(), rows, prices, setters,
               arg("shown_row").noconvert(), arg("shown_price").noconvert(), arg("shown_rank").noconvert(),
               arg("shown_setter").noconvert());
    module.def("all_within", &all_within, arg("values").noconvert(), arg("low"), arg("high"));
    module.def("add_by_code", &add_by_code, arg("codes").noconvert(), arg("amounts").noconvert(),
               arg("totals").noconvert());
}
