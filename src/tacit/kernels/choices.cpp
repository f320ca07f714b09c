// Choices over ragged arrays of private scores: their laws, draws from them, and expectations. No price comes here.
// `reference_choices.py` says the same in NumPy, `choices.py` what each argument is and checks it.
//
// Request i has the candidates offsets[i] to offsets[i + 1], in public order, to which ties of scores go.

#include <cmath>

#include "ranking.h"
#include "top_choice.h"

namespace {

template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The laws of top-m randomized response that occur, one a row; law[i] is the row of auction i.
struct Laws {
    const Whole *law, *kept, *top;
    Index count;
    // Row of auction i, or -1 where it does not fit the auction.
    Whole of(Index i, Whole size) const {
        const Whole row = law[i];
        return row >= 0 && row < count && kept[row] >= (size > 0) && kept[row] <= size ? row : -1;
    }
};

bool choose_top(Flat<const Whole> offsets, Flat<const double> scores, Flat<const Whole> law, Flat<const Whole> kept,
                Flat<const Whole> top, Flat<const Word> low_weight, Flat<const Word> high_weight,
                Flat<const Whole> spare_words, Flat<const Word> words, Flat<Whole> chosen, bool wide) {
    const auto count = static_cast<Index>(offsets.shape(0)) - 1;
    const Laws laws{law.data(), kept.data(), top.data(), static_cast<Index>(kept.shape(0))};
    const Whole *start = offsets.data(), *spare = spare_words.data();
    const double* score = scores.data();
    const Word *low = low_weight.data(), *high = high_weight.data(), *word = words.data();
    Whole* out = chosen.data();
    bool fits = true;
    Scratch scratch(largest(start, count) + 1);
    nb::gil_scoped_release free;
    run_keeping_subnormals(wide, [&]() INLINE_LAMBDA {
        for (Index i = 0; i < count && fits; ++i) {
            const double* own = score + start[i];
            const Whole row = laws.of(i, start[i + 1] - start[i]);
            if (row < 0) {
                fits = false;
                break;
            }
            const TopLaw one{laws.kept[row], laws.top[row], spare[row], low[row], high[row]};
            out[i] = one.place(own, word[i], scratch);
        }
    });
    return fits;
}

bool top_pmf(Flat<const Whole> offsets, Flat<const double> scores, Flat<const Whole> law, Flat<const Whole> kept,
             Flat<const Whole> top, Flat<const double> low_chance, Flat<const double> high_chance, Flat<double> pmf,
             bool wide) {
    const auto count = static_cast<Index>(offsets.shape(0)) - 1;
    const Laws laws{law.data(), kept.data(), top.data(), static_cast<Index>(kept.shape(0))};
    const Whole* start = offsets.data();
    const double *score = scores.data(), *low = low_chance.data(), *high = high_chance.data();
    double* out = pmf.data();
    bool fits = true;
    Scratch scratch(largest(start, count) + 1);
    nb::gil_scoped_release free;
    run_keeping_subnormals(wide, [&]() INLINE_LAMBDA {
        for (Index i = 0; i < count && fits; ++i) {
            const Index size = start[i + 1] - start[i];
            const Whole row = laws.of(i, size);
            if (row < 0) {
                fits = false;
                break;
            }
            const Whole k = laws.kept[row], m = laws.top[row];
            double* p = out + start[i];
            for (Index j = 0; j < size; ++j) p[j] = j < k ? low[row] : 0.0;
            if (m == 1 && k) p[best_of(score + start[i], k)] = high[row];
            if (m <= 1) continue;
            ranks_of(score + start[i], k, scratch.rank.data(), scratch.order.data());
            for (Index j = 0; j < k; ++j)
                if (scratch.rank[j] < m) p[j] = high[row];
        }
    });
    return fits;
}

// exp(rate (score - best)): 1 for the best, which is at least one.
INLINE void odds_of(const double* score, Index size, double rate, double* odds) {
    double best = score[0];
    for (Index j = 1; j < size; ++j) best = score[j] > best ? score[j] : best;
    for (Index j = 0; j < size; ++j) odds[j] = std::exp(rate * (score[j] - best));
}

INLINE void to_one(double* p, Index size) {
    double sum = 0;
    for (Index j = 0; j < size; ++j) sum += p[j];
    for (Index j = 0; j < size; ++j) p[j] /= sum;
}

void softmax_pmf(Flat<const Whole> offsets, Flat<const double> scores, Flat<const double> rates, Flat<double> pmf,
                 bool wide) {
    const auto count = static_cast<Index>(offsets.shape(0)) - 1;
    const Whole* start = offsets.data();
    const double *score = scores.data(), *rate = rates.data();
    double* out = pmf.data();
    nb::gil_scoped_release free;
    run_keeping_subnormals(wide, [&]() INLINE_LAMBDA {
        for (Index i = 0; i < count; ++i) {
            const Index size = start[i + 1] - start[i];
            if (!size) continue;
            odds_of(score + start[i], size, rate[i], out + start[i]);
            to_one(out + start[i], size);
        }
    });
}

// p_i = w_i * integral over [0, 1] of prod_{j != i} (1 - w_j y) dy, by Gauss and Legendre; all terms are positive.
INLINE void flip_one(const double* __restrict node, const double* __restrict weight, Index nodes,
                     const double* __restrict odds, Index size, double* __restrict product, double* __restrict p) {
    for (Index q = 0; q < nodes; ++q) product[q] = weight[q];
    for (Index j = 0; j < size; ++j) {
        const double own = odds[j];
        for (Index q = 0; q < nodes; ++q) product[q] *= 1.0 - own * node[q];
    }
    for (Index j = 0; j < size; ++j) p[j] = 0;
    for (Index q = 0; q < nodes; ++q) {
        const double y = node[q], whole = product[q];
        for (Index j = 0; j < size; ++j) p[j] += whole / (1.0 - odds[j] * y);
    }
    for (Index j = 0; j < size; ++j) p[j] *= odds[j];
}

// The nodes of auctions of size a are node_offsets[a] to node_offsets[a + 1] of `nodes` and `weights`.
void flip_pmf(Flat<const Whole> offsets, Flat<const double> scores, Flat<const double> rates,
              Flat<const Whole> node_offsets, Flat<const double> nodes, Flat<const double> weights,
              Flat<double> pmf, bool wide) {
    const auto count = static_cast<Index>(offsets.shape(0)) - 1;
    const Whole *start = offsets.data(), *first = node_offsets.data();
    const double *score = scores.data(), *rate = rates.data(), *node = nodes.data(), *weight = weights.data();
    double* out = pmf.data();
    Scratch scratch(largest(start, count) + 1);
    nb::gil_scoped_release free;
    run_keeping_subnormals(wide, [&]() INLINE_LAMBDA {
        for (Index i = 0; i < count; ++i) {
            const Index size = start[i + 1] - start[i];
            if (!size) continue;
            const Whole at = first[size];
            odds_of(score + start[i], size, rate[i], scratch.score.data());
            flip_one(node + at, weight + at, first[size + 1] - at, scratch.score.data(), size, scratch.work.data(),
                     out + start[i]);
            to_one(out + start[i], size);
        }
    });
}

// One word a choice. Each candidate has 1 + floor(p (2^64 - 2^32)) words, the likeliest also all that are left.
void choose_by_pmf(Flat<const Whole> offsets, Flat<const double> pmf, Flat<const Word> words, Flat<Whole> chosen) {
    const auto count = static_cast<Index>(offsets.shape(0)) - 1;
    const Whole* start = offsets.data();
    const double* chance = pmf.data();
    const Word* word = words.data();
    Whole* out = chosen.data();
    nb::gil_scoped_release free;
    for (Index i = 0; i < count; ++i) {
        const Index size = start[i + 1] - start[i];
        const double* p = chance + start[i];
        Word left = word[i];
        Whole found = -1;
        for (Index j = 0; j < size && found < 0; ++j) {
            const Word share = static_cast<Word>(p[j] * (0x1p64 - 0x1p32)) + 1;
            if (left < share) found = j;
            left -= share;
        }
        out[i] = found >= 0 || !size ? found : best_of(p, size);
    }
}

void expected(Flat<const Whole> offsets, Flat<const double> pmf, Table<const double> values, Table<double> out,
              bool wide) {
    const auto count = static_cast<Index>(offsets.shape(0)) - 1;
    const auto width = static_cast<Index>(values.shape(1));
    const Whole* start = offsets.data();
    const double *chance = pmf.data(), *value = values.data();
    double* result = out.data();
    nb::gil_scoped_release free;
    run_keeping_subnormals(wide, [&]() INLINE_LAMBDA {
        for (Index i = 0; i < count; ++i) {
            double* own = result + i * width;
            for (Index v = 0; v < width; ++v) own[v] = 0;
            for (Whole at = start[i]; at < start[i + 1]; ++at)
                for (Index v = 0; v < width; ++v) own[v] += chance[at] * value[at * width + v];
        }
    });
}

}  // namespace

NB_MODULE(_choices, module) {
    using nb::arg;
    const auto offsets = arg("offsets").noconvert(), scores = arg("scores").noconvert();
    const auto pmf = arg("pmf").noconvert(), words = arg("words").noconvert(), chosen = arg("chosen").noconvert();
    const auto law = arg("law").noconvert(), kept = arg("kept").noconvert(), top = arg("top").noconvert();
    const auto rates = arg("rates").noconvert();
    module.def("choose_top", &choose_top, offsets, scores, law, kept, top, arg("low_weight").noconvert(),
               arg("high_weight").noconvert(), arg("spare_words").noconvert(), words, chosen, arg("wide") = true);
    module.def("top_pmf", &top_pmf, offsets, scores, law, kept, top, arg("low_chance").noconvert(),
               arg("high_chance").noconvert(), pmf, arg("wide") = true);
    module.def("softmax_pmf", &softmax_pmf, offsets, scores, rates, pmf, arg("wide") = true);
    module.def("flip_pmf", &flip_pmf, offsets, scores, rates, arg("node_offsets").noconvert(),
               arg("nodes").noconvert(), arg("weights").noconvert(), pmf, arg("wide") = true);
    module.def("choose_by_pmf", &choose_by_pmf, offsets, pmf, words, chosen);
    module.def("expected", &expected, offsets, pmf, arg("values").noconvert(), arg("out").noconvert(),
               arg("wide") = true);
}
