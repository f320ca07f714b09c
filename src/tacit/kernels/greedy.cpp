// Lazy greedy for facility location, dense or sparse: gain(a | S) = sum over contexts of weight x (value - best so far)+.
// `reference_greedy.py` says the same in NumPy, `greedy.py` what each argument is and checks it.
//
// Sums run in lanes that are folded at the end, in one order for every width, and nothing is fused. So equal rows have
// equal gains, a gain never rises while the set grows (rounding is monotone), and an old gain is a bound for ever.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "greedy_sketch.h"
#include "wide.h"

namespace nb = nanobind;

namespace {

using Whole = std::int64_t;

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

#if HAS_WIDE
// Not WIDE of wide.h, which may fuse a product into a sum, and then rounds unlike the other width.
template <class Body>
__attribute__((target("avx2"))) void run_unfused(const Body& body) {
    body();
}
#endif

template <class Body>
void run_either(bool wide, const Body& body) {
#if HAS_WIDE
    if (wide && machine_is_wide()) return run_unfused(body);
#endif
    (void)wide;
    body();
}

constexpr Index FETCHED = 256;  // values of a row that are asked for beforehand; the machine foresees the rest

INLINE double positive(double x) { return x > 0 ? x : 0; }

template <int Lanes>
INLINE double folded(double* sums) {
    for (int half = Lanes / 2; half; half /= 2)
        for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    return sums[0];
}

// Where rows are short, nothing is shorter.
struct NoSketch {
    bool has(Index) const { return false; }
    bool has_peaks() const { return false; }
    double peak_bound(Index) const { return 0; }
    void fetch_peaks(Index, Index) const {}
    void draw_peaks(Index) {}
    void open_peaks(Index) {}
    double bound(Index) const { return 0; }
    void draw(Index) {}
    void raise(const double*) {}
};

template <class T>
struct Dense {
    static constexpr int LANES = 16;
    using Bounds = Sketch<T>;
    const T* values;  // (ads, contexts)
    Index ads, contexts;

    INLINE double gain(Index ad, const double* __restrict weight, const double* __restrict best) const {
        const T* __restrict row = values + ad * contexts;
        double sums[LANES] = {};
        Index c = 0;
        for (; c + LANES <= contexts; c += LANES)
            for (int j = 0; j < LANES; ++j)
                sums[j] += weight[c + j] * positive(static_cast<double>(row[c + j]) - best[c + j]);
        for (int j = 0; c < contexts; ++c, ++j) sums[j] += weight[c] * positive(static_cast<double>(row[c]) - best[c]);
        return folded<LANES>(sums);
    }

    // As `gain` while nothing is chosen; NaN where a value is negative, and not finite where one is not.
    INLINE double first_gain(Index ad, const double* __restrict weight) const {
        const T* __restrict row = values + ad * contexts;
        double sums[LANES] = {};
        Index c = 0;
        for (; c + LANES <= contexts; c += LANES)
            for (int j = 0; j < LANES; ++j) sums[j] += weight[c + j] * static_cast<double>(row[c + j]);
        for (int j = 0; c < contexts; ++c, ++j) sums[j] += weight[c] * static_cast<double>(row[c]);
        int negative = 0;  // in a loop of its own: compilers do not vectorise both at once
        for (c = 0; c < contexts; ++c) negative |= row[c] < 0;
        return negative ? std::numeric_limits<double>::quiet_NaN() : folded<LANES>(sums);
    }

    INLINE void fetch(Index ad) const { prefetch(values + ad * contexts, std::min(contexts, FETCHED) * sizeof(T)); }

    Bounds sketch(const double* weight, std::uint8_t* room) const { return {values, ads, contexts, weight, room}; }

    void raise(Index ad, double* best) const {
        const T* row = values + ad * contexts;
        for (Index c = 0; c < contexts; ++c) best[c] = std::max(best[c], static_cast<double>(row[c]));
    }

};

template <class T>
struct Sparse {
    static constexpr int LANES = 4;
    using Bounds = NoSketch;
    const Whole* offsets;          // (ads + 1,)
    const std::int32_t* context;   // (entries,)
    const T* value;                // (entries,)
    Index ads, contexts;

    INLINE double gain(Index ad, const double* weight, const double* best) const {
        const Whole first = offsets[ad], size = offsets[ad + 1] - first;
        double sums[LANES] = {};
        for (Whole i = 0; i < size; ++i) {
            const Index c = context[first + i];
            sums[i % LANES] += weight[c] * positive(static_cast<double>(value[first + i]) - best[c]);
        }
        return folded<LANES>(sums);
    }

    INLINE double first_gain(Index ad, const double* weight) const {
        const Whole first = offsets[ad], size = offsets[ad + 1] - first;
        double sums[LANES] = {};
        for (Whole i = 0; i < size; ++i) {
            const T own = value[first + i];
            if (!(own >= 0)) return std::numeric_limits<double>::quiet_NaN();
            sums[i % LANES] += weight[context[first + i]] * static_cast<double>(own);
        }
        return folded<LANES>(sums);
    }

    INLINE void fetch(Index) const {}

    Bounds sketch(const double*, std::uint8_t*) const { return {}; }

    void raise(Index ad, double* best) const {
        for (Whole i = offsets[ad]; i < offsets[ad + 1]; ++i)
            best[context[i]] = std::max(best[context[i]], static_cast<double>(value[i]));
    }

};

struct Gain {
    double amount;
    Whole ad;
};

INLINE bool before(const Gain& one, const Gain& other) {
    return one.amount > other.amount || (one.amount == other.amount && one.ad < other.ad);
}

constexpr Index BLOCK = 16;  // ads that share an upper bound, so that most of them are passed over together
constexpr std::size_t SEEDS = 8, FIRST = 64;  // ads that are looked at before others

struct Outcome {
    Whole picked = 0, evaluations = 0;
    double bound = std::numeric_limits<double>::infinity();
};

// `known[a]` bounds the gain of ad a from above, and comes down as ads are looked at.
template <class Values>
class Greedy {
    const Values& values_;
    typename Values::Bounds& sketch_;
    const double* weight_;
    double at_least_;
    std::vector<double> known_, highest_, best_;
    std::vector<Whole> evaluated_;  // the round in which the bound of an ad was its gain
    std::vector<Gain> leaders_, seen_, hopeful_;
    std::size_t asked_;
    Whole round_ = 0, evaluations_ = 0;

    INLINE void refresh(Index block) {
        const Index end = std::min(values_.ads, (block + 1) * BLOCK);
        double high = 0;
        for (Index a = block * BLOCK; a < end; ++a) high = known_[a] > high ? known_[a] : high;
        highest_[block] = high;
    }
    INLINE bool leads(double amount, Whole ad) const {
        return amount > at_least_ && (leaders_.size() < asked_ || before({amount, ad}, leaders_.back()));
    }
    static void insert(std::vector<Gain>& sorted, const Gain& gain, std::size_t most) {
        sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), gain, before), gain);
        if (sorted.size() > most) sorted.pop_back();
    }
    // More than are asked for: until there are as many leaders, every ad might be one.
    INLINE std::size_t seeds() const { return asked_ + SEEDS; }
    // Whether an ad may still lead, by the cheapest bound there is.
    INLINE bool may_lead(Index ad) {
        if (!leads(known_[ad], ad) || evaluated_[ad] == round_) return false;
        if (!round_ || (!sketch_.has(ad) && !sketch_.has_peaks())) return true;
        known_[ad] = std::min(known_[ad], sketch_.has(ad) ? sketch_.bound(ad) : sketch_.peak_bound(ad));
        return leads(known_[ad], ad);
    }
    INLINE void evaluate(Index ad) {
        const Gain own{values_.gain(ad, weight_, best_.data()), ad};
        // An ad that comes back will come back again; its row is at hand. Most ads are looked at once, if at all.
        if (evaluated_[ad] >= 0 && !sketch_.has(ad)) sketch_.draw(ad);
        evaluated_[ad] = round_, known_[ad] = own.amount, ++evaluations_;
        insert(seen_, own, seeds());
        if (leads(own.amount, ad)) insert(leaders_, own, asked_);
    }

  public:
    Greedy(const Values& values, typename Values::Bounds& sketch, const double* weight, const double* first,
           double at_least, std::size_t asked)
        : values_(values), sketch_(sketch), weight_(weight), at_least_(at_least), known_(first, first + values.ads),
          highest_((values.ads + BLOCK - 1) / BLOCK), best_(values.contexts, 0.0), evaluated_(values.ads, -1),
          asked_(asked) {
        for (std::size_t block = 0; block < highest_.size(); ++block) refresh(static_cast<Index>(block));
        for (Index a = 0; a < values.ads; ++a)
            if (seen_.size() < seeds() || known_[a] > seen_.back().amount) insert(seen_, {known_[a], a}, seeds());
    }
    Whole evaluations() const { return evaluations_; }

    // The `asked` ads that gain most, and more than `at_least`. Those that led the last round are looked at first, and
    // then some with the highest bounds: the sooner a leader is found, the fewer are left, which lie in memory in order.
    INLINE const std::vector<Gain>& leaders() {
        const std::vector<Gain> before_others = seen_;
        leaders_.clear(), seen_.clear(), hopeful_.clear();
        for (const Gain& seed : before_others) {
            if (may_lead(seed.ad))
                evaluate(seed.ad);
            else if (known_[seed.ad] > 0)
                insert(seen_, {known_[seed.ad], seed.ad}, seeds());
        }
        for (std::size_t block = 0; block < highest_.size(); ++block) {
            if (!(highest_[block] > at_least_) ||
                (leaders_.size() == asked_ && highest_[block] < leaders_.back().amount))
                continue;
            const Index first = static_cast<Index>(block) * BLOCK, end = std::min(values_.ads, first + BLOCK);
            sketch_.fetch_peaks(end, std::min(values_.ads, end + BLOCK));
            for (Index a = first; a < end; ++a)
                if (may_lead(a)) hopeful_.push_back({known_[a], a});
            refresh(static_cast<Index>(block));
        }
        std::array<Gain, FIRST> highest;
        const auto end = std::partial_sort_copy(hopeful_.begin(), hopeful_.end(), highest.begin(), highest.end(), before);
        for (auto each = highest.begin(); each != end; ++each)
            if (leads(each->amount, each->ad)) evaluate(each->ad);
        for (std::size_t i = 0; i < hopeful_.size(); ++i) {
            const Gain& each = hopeful_[i];
            if (i + 1 < hopeful_.size()) values_.fetch(hopeful_[i + 1].ad);
            if (evaluated_[each.ad] != round_ && leads(each.amount, each.ad)) evaluate(each.ad);
        }
        Index fresh = -1;
        for (const Gain& each : hopeful_)
            if (evaluated_[each.ad] == round_ && each.ad / BLOCK != fresh) refresh(fresh = each.ad / BLOCK);
        return leaders_;
    }
    INLINE void take(Whole ad) {
        values_.raise(ad, best_.data());
        sketch_.raise(best_.data());
        known_[ad] = 0;
        ++round_;
    }
};

template <class Values>
INLINE Outcome greedy(const Values& values, typename Values::Bounds& sketch, const double* weight, const double* first,
                      Whole k, double at_least, double enough, bool certify, Whole* ads, double* gains) {
    Outcome out;
    Greedy<Values> state(values, sketch, weight, first, at_least, certify ? static_cast<std::size_t>(k) : 1);
    for (double total = 0;;) {
        const bool last = out.picked == k || total >= enough;
        if (last && !certify) break;
        const auto& leaders = state.leaders();
        if (certify) {  // nobody gains more than the set so far and the k best additions to it, each by itself
            double reach = total;
            for (const Gain& leader : leaders) reach += leader.amount - at_least;
            out.bound = std::min(out.bound, reach);
        }
        if (last || leaders.empty()) break;
        const Gain chosen = leaders.front();
        ads[out.picked] = chosen.ad, gains[out.picked++] = chosen.amount;
        total += chosen.amount;
        state.take(chosen.ad);
    }
    out.evaluations = state.evaluations();
    return out;
}

// -1, or the first ad with a value that is negative or not finite, or with values too large to add up.
template <class Values>
INLINE Whole read_all(const Values& values, typename Values::Bounds& sketch, const double* weight, double* gains) {
    for (Index a = 0; a < values.ads; ++a) {
        gains[a] = values.first_gain(a, weight);
        if (!std::isfinite(gains[a])) return a;
        if (sketch.has_peaks()) sketch.draw_peaks(a);
    }
    return -1;
}

template <class Values>
Whole first_gains(const Values& values, Flat<const double> weight, Flat<double> gains, bool wide) {
    Whole bad = -1;
    auto sketch = values.sketch(weight.data(), nullptr);
    nb::gil_scoped_release free;
    run_either(wide, [&]() INLINE_LAMBDA { bad = read_all(values, sketch, weight.data(), gains.data()); });
    return bad;
}

template <class Values>
void gains_beside(const Values& values, Flat<const double> weight, Flat<const double> best, Flat<double> gains,
                  bool wide) {
    nb::gil_scoped_release free;
    run_either(wide, [&]() INLINE_LAMBDA {
        for (Index a = 0; a < values.ads; ++a) gains.data()[a] = values.gain(a, weight.data(), best.data());
    });
}

// `first` holds bounds, or is filled here where `unread`; `room` is for a sketch, or empty. Says -1 and the ad where its values are refused.
template <class Values>
nb::tuple lazy_greedy(const Values& values, Flat<const double> weights, Flat<double> first, bool unread, Whole k,
                      double at_least, double enough, bool certify, Flat<std::uint8_t> room, Flat<Whole> ads,
                      Flat<double> gains, bool wide) {
    Outcome out;
    Whole bad = -1;
    {
        nb::gil_scoped_release free;
        const double* weight = weights.data();
        auto sketch = values.sketch(weight, room.shape(0) ? room.data() : nullptr);
        run_either(wide, [&]() INLINE_LAMBDA {
            if (unread) {
                sketch.open_peaks(values.ads);
                bad = read_all(values, sketch, weight, first.data());
            }
            if (bad < 0)
                out = greedy(values, sketch, weight, first.data(), k, at_least, enough, certify, ads.data(),
                             gains.data());
        });
    }
    if (bad >= 0) return nb::make_tuple(-1, bad, 0.0);
    return nb::make_tuple(out.picked, out.evaluations, out.bound);
}

template <class T>
Dense<T> dense(const Table<const T>& values) {
    return {values.data(), static_cast<Index>(values.shape(0)), static_cast<Index>(values.shape(1))};
}

template <class T>
Sparse<T> sparse(const Flat<const Whole>& offsets, const Flat<const std::int32_t>& context, const Flat<const T>& value,
                 const Flat<const double>& weight) {
    return {offsets.data(), context.data(), value.data(), static_cast<Index>(offsets.shape(0)) - 1,
            static_cast<Index>(weight.shape(0))};
}

template <class T>
void define(nb::module_& module) {
    using nb::arg;
    const auto table = arg("values").noconvert(), weight = arg("weight").noconvert();
    const auto offsets = arg("offsets").noconvert(), context = arg("context").noconvert();
    const auto value = arg("value").noconvert(), first = arg("first").noconvert();
    const auto ads = arg("ads").noconvert(), gains = arg("gains").noconvert();
    module.def(
        "dense_first_gains",
        [](Table<const T> v, Flat<const double> w, Flat<double> out, bool wide) {
            return first_gains(dense(v), w, out, wide);
        },
        table, weight, gains, arg("wide") = true);
    module.def(
        "dense_gains",
        [](Table<const T> v, Flat<const double> w, Flat<const double> best, Flat<double> out, bool wide) {
            gains_beside(dense(v), w, best, out, wide);
        },
        table, weight, arg("best").noconvert(), gains, arg("wide") = true);
    module.def(
        "dense_greedy",
        [](Table<const T> v, Flat<const double> w, Flat<double> from, bool unread, Whole k, double at_least,
           double enough, bool certify, Flat<std::uint8_t> room, Flat<Whole> picked, Flat<double> out, bool wide) {
            return lazy_greedy(dense(v), w, from, unread, k, at_least, enough, certify, room, picked, out, wide);
        },
        table, weight, first, arg("unread"), arg("k"), arg("at_least"), arg("enough"), arg("certify"),
        arg("room").noconvert(), ads, gains,
        arg("wide") = true);
    module.def(
        "sparse_first_gains",
        [](Flat<const Whole> o, Flat<const std::int32_t> c, Flat<const T> v, Flat<const double> w, Flat<double> out,
           bool wide) { return first_gains(sparse(o, c, v, w), w, out, wide); },
        offsets, context, value, weight, gains, arg("wide") = true);
    module.def(
        "sparse_gains",
        [](Flat<const Whole> o, Flat<const std::int32_t> c, Flat<const T> v, Flat<const double> w,
           Flat<const double> best, Flat<double> out, bool wide) {
            gains_beside(sparse(o, c, v, w), w, best, out, wide);
        },
        offsets, context, value, weight, arg("best").noconvert(), gains, arg("wide") = true);
    module.def(
        "sparse_greedy",
        [](Flat<const Whole> o, Flat<const std::int32_t> c, Flat<const T> v, Flat<const double> w,
           Flat<double> from, bool unread, Whole k, double at_least, double enough, bool certify, Flat<std::uint8_t> room,
           Flat<Whole> picked, Flat<double> out, bool wide) {
            return lazy_greedy(sparse(o, c, v, w), w, from, unread, k, at_least, enough, certify, room, picked,
                               out, wide);
        },
        offsets, context, value, weight, first, arg("unread"), arg("k"), arg("at_least"), arg("enough"), arg("certify"),
        arg("room").noconvert(), ads, gains,
        arg("wide") = true);
}

}  // namespace

NB_MODULE(_greedy, module) {
    define<float>(module);
    define<double>(module);
}
