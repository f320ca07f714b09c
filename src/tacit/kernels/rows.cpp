// Rows of a table by their ids: gather, scatter, list, update, and bring up to date with pending noise.
// `reference_training.py` says the same in NumPy, `training.py` what each argument is and checks it.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "wide.h"

namespace nb = nanobind;

namespace {

constexpr Index AHEAD = 16;  // rows asked for before they are needed

// A batch's ids side by side: the public fields as they are, then the sensitive ones moved to their own rows.
INLINE void gather(const std::int32_t* open, Index open_fields, const std::int32_t* hidden, Index hidden_fields,
                   const std::int64_t* rows, Index count, std::uint32_t offset, std::int32_t* out) {
    for (Index i = 0; i < count; ++i) {
        if (i + AHEAD < count) {
            if (open_fields) prefetch(open + rows[i + AHEAD] * open_fields, open_fields * 4);
            if (hidden_fields) prefetch(hidden + rows[i + AHEAD] * hidden_fields, hidden_fields * 4);
        }
        const std::int32_t* source = open + rows[i] * open_fields;
        for (Index f = 0; f < open_fields; ++f) out[f] = source[f];
        out += open_fields;
        source = hidden + rows[i] * hidden_fields;
        for (Index f = 0; f < hidden_fields; ++f)  // unsigned, so that nonsense wraps and is refused by its user
            out[f] = static_cast<std::int32_t>(static_cast<std::uint32_t>(source[f]) + offset);
        out += hidden_fields;
    }
}

INLINE void take(const float* table, const std::int32_t* ids, Index count, Index width, float* out) {
    for (Index k = 0; k < count; ++k) {
        if (k + AHEAD < count) prefetch(table + ids[k + AHEAD] * width, width * 4);
        const float* row = table + ids[k] * width;
        for (Index d = 0; d < width; ++d) out[k * width + d] = row[d];
    }
}

INLINE void add(float* into, const std::int32_t* ids, Index count, Index width, const float* values) {
    for (Index k = 0; k < count; ++k) {
        if (k + AHEAD < count) prefetch(into + ids[k + AHEAD] * width, width * 4);
        float* row = into + ids[k] * width;
        for (Index d = 0; d < width; ++d) row[d] += values[k * width + d];
    }
}

// The ids whose stamp is not this step's, each once and rising; stamps them. A bit for every row marks them, or
// where those would be many more than the ids, a sort.
Index list_rows(const std::int32_t* ids, Index count, std::int32_t* stamps, Index height, std::int32_t step,
                std::int32_t* rows) {
    std::int32_t* next = rows;
    const auto list = [&](std::int32_t row) {
        if (stamps[row] != step) *next++ = row;
        stamps[row] = step;
    };
    const Index words = (height + 63) / 64;
    if (words / 4 > count) {
        std::vector<std::int32_t> sorted(ids, ids + count);
        std::sort(sorted.begin(), sorted.end());
        for (const std::int32_t row : sorted) list(row);
        return next - rows;
    }
    std::vector<std::uint64_t> marks(words);
    for (Index k = 0; k < count; ++k) marks[ids[k] >> 6] |= std::uint64_t{1} << (ids[k] & 63);
    for (Index word = 0; word < words; ++word)
        for (std::uint64_t left = marks[word]; left; left &= left - 1)
            list(static_cast<std::int32_t>(word * 64 + __builtin_ctzll(left)));
    return next - rows;
}

// What is still to be taken off what a row has gathered is its pull times its embedding; then the pull is cleared.
INLINE void apply(float* weights, float* gathered, const std::int32_t* rows, Index count, Index width, float rate,
                  float keep, float* pulls) {
    for (Index k = 0; k < count; ++k) {
        if (k + AHEAD < count) {
            prefetch(weights + rows[k + AHEAD] * width, width * 4);
            prefetch(gathered + rows[k + AHEAD] * width, width * 4);
        }
        float* __restrict w = weights + rows[k] * width;
        float* __restrict v = gathered + rows[k] * width;
        float pull = 0.0f;
        if (pulls) std::swap(pull, pulls[rows[k]]);
        w[0] -= rate * v[0];
        if (keep == 0.0f) {  // cleared whatever it held, infinities too
            v[0] = 0.0f;
            for (Index d = 1; d < width; ++d) {
                w[d] -= rate * (v[d] - pull * w[d]);
                v[d] = 0.0f;
            }
            continue;
        }
        v[0] *= keep;
        for (Index d = 1; d < width; ++d) {
            const float moved = v[d] - pull * w[d];
            w[d] -= rate * moved;
            v[d] = keep * moved;
        }
    }
}

// What has piled up for a row since each open step: see `training.catch_up`.
struct Pending {
    const float *decay, *drift, *factors;
    std::int32_t first_open, now;
};

struct Listed {
    const std::int32_t* rows;  // or null: the rows from `start` on
    Index start, count;
    INLINE Index at(Index k) const { return rows ? rows[k] : start + k; }
};

INLINE void catch_up_rows(float* weights, float* velocity, Index width, const Listed& listed, std::int32_t* since,
                          const Pending& pending, const float* normals) {
    for (Index k = 0; k < listed.count; ++k) {
        if (listed.rows && k + AHEAD < listed.count) {
            const Index later = listed.rows[k + AHEAD];
            prefetch(weights + later * width, width * 4);
            if (velocity) prefetch(velocity + later * width, width * 4);
        }
        const Index row = listed.at(k);
        if (since[row] == pending.now) continue;
        const Index open = since[row] - pending.first_open;
        since[row] = pending.now;
        const float* factor = pending.factors + 3 * open;
        float* __restrict w = weights + row * width;
        const float* x = normals + k * width;
        if (!velocity) {
            if (normals)
                for (Index d = 0; d < width; ++d) w[d] += factor[0] * x[d];
            continue;
        }
        float* __restrict v = velocity + row * width;
        const float decay = pending.decay[open], drift = pending.drift[open];
        if (!normals) {
            for (Index d = 0; d < width; ++d) {
                w[d] += drift * v[d];
                v[d] *= decay;
            }
            continue;
        }
        const float* y = x + listed.count * width;
        for (Index d = 0; d < width; ++d) {
            w[d] += drift * v[d] + (factor[1] * x[d] + factor[2] * y[d]);
            v[d] = decay * v[d] + factor[0] * x[d];
        }
    }
}

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Any = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

template <class Array>
Index length(const Array& array, std::size_t axis = 0) {
    return static_cast<Index>(array.shape(axis));
}

void gather_ids(Table<const std::int32_t> open, Table<const std::int32_t> hidden, Flat<const std::int64_t> rows,
                std::int32_t offset, Table<std::int32_t> out, bool wide) {
    const std::int32_t *open_ids = open.data(), *hidden_ids = hidden.data();
    const std::int64_t* wanted = rows.data();
    const Index open_fields = length(open, 1), hidden_fields = length(hidden, 1), count = length(rows);
    std::int32_t* target = out.data();
    nb::gil_scoped_release free;
    run(wide, [&]() INLINE_LAMBDA {
        gather(open_ids, open_fields, hidden_ids, hidden_fields, wanted, count, offset, target);
    });
}

void take_rows(Table<const float> table, Flat<const std::int32_t> ids, Table<float> out, bool wide) {
    const float* source = table.data();
    const std::int32_t* wanted = ids.data();
    float* target = out.data();
    const Index count = length(ids), width = length(table, 1);
    nb::gil_scoped_release free;
    run(wide, [&]() INLINE_LAMBDA { take(source, wanted, count, width, target); });
}

void add_rows(Table<float> into, Flat<const std::int32_t> ids, Table<const float> values, bool wide) {
    float* target = into.data();
    const std::int32_t* wanted = ids.data();
    const float* added = values.data();
    const Index count = length(ids), width = length(into, 1);
    nb::gil_scoped_release free;
    run(wide, [&]() INLINE_LAMBDA { add(target, wanted, count, width, added); });
}

Index touch(Flat<const std::int32_t> ids, Flat<std::int32_t> stamps, std::int32_t step, Flat<std::int32_t> rows) {
    const std::int32_t* wanted = ids.data();
    std::int32_t *stamp = stamps.data(), *listed = rows.data();
    const Index count = length(ids), height = length(stamps);
    nb::gil_scoped_release free;
    return list_rows(wanted, count, stamp, height, step, listed);
}

void apply_rows(Table<float> weights, Table<float> gathered, Flat<const std::int32_t> rows, float rate, float keep,
                std::optional<Flat<float>> pulls, bool wide) {
    float *w = weights.data(), *v = gathered.data(), *pull = pulls ? pulls->data() : nullptr;
    const std::int32_t* listed = rows.data();
    const Index count = length(rows), width = length(weights, 1);
    nb::gil_scoped_release free;
    run(wide, [&]() INLINE_LAMBDA { apply(w, v, listed, count, width, rate, keep, pull); });
}

void catch_up(Table<float> weights, std::optional<Table<float>> velocity,
              std::optional<Flat<const std::int32_t>> rows, Index start, Index count, Flat<std::int32_t> since,
              std::int32_t first_open, std::int32_t now, Flat<const float> decay, Flat<const float> drift,
              Table<const float> factors, std::optional<Any<const float>> normals, bool wide) {
    float* w = weights.data();
    float* v = velocity ? velocity->data() : nullptr;
    std::int32_t* brought = since.data();
    const float* x = normals ? normals->data() : nullptr;
    const Pending pending{decay.data(), drift.data(), factors.data(), first_open, now};
    const Listed listed{rows ? rows->data() : nullptr, start, count};
    const Index width = length(weights, 1);
    nb::gil_scoped_release free;
    for (Index k = 0; k < count; ++k) {
        const std::int32_t last = brought[listed.at(k)];
        if (last < first_open || last > now) throw std::invalid_argument("expected rows that are open");
    }
    run(wide, [&]() INLINE_LAMBDA { catch_up_rows(w, v, width, listed, brought, pending, x); });
}

}  // namespace

NB_MODULE(_rows, module) {
    using nb::arg;
    module.def("gather_ids", &gather_ids, arg("open").noconvert(), arg("hidden").noconvert(),
               arg("rows").noconvert(), arg("offset"), arg("out").noconvert(), arg("wide") = true);
    module.def("take_rows", &take_rows, arg("table").noconvert(), arg("ids").noconvert(), arg("out").noconvert(),
               arg("wide") = true);
    module.def("add_rows", &add_rows, arg("into").noconvert(), arg("ids").noconvert(), arg("values").noconvert(),
               arg("wide") = true);
    module.def("touch", &touch, arg("ids").noconvert(), arg("stamps").noconvert(), arg("step"),
               arg("rows").noconvert());
    module.def("apply_rows", &apply_rows, arg("weights").noconvert(), arg("gathered").noconvert(),
               arg("rows").noconvert(), arg("rate"), arg("keep"), arg("pulls").noconvert().none(),
               arg("wide") = true);
    module.def("catch_up", &catch_up, arg("weights").noconvert(), arg("velocity").noconvert().none(),
               arg("rows").noconvert().none(), arg("start"), arg("count"), arg("since").noconvert(),
               arg("first_open"), arg("now"), arg("decay").noconvert(), arg("drift").noconvert(),
               arg("factors").noconvert(), arg("normals").noconvert().none(), arg("wide") = true);
}
