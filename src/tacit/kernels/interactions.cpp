// The factorization machine's two passes over a batch: forward with gradient norms, and the gradient's scatter.
// `reference_training.py` says the same in NumPy, `training.py` what each argument is and checks it.
//
// A table row is (linear weight, embedding). With S the sum of an example's embeddings v_f, the logit's gradient
// in row f is (1, S - v_f). Its norm needs S and the rows, which the forward pass has in cache. Over a batch, row v
// gets sum c_i S_i - (sum c_i) v: a scatter may leave v to the end and keep only the sum of the c_i, the row's pull.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "wide.h"

namespace nb = nanobind;

namespace {

constexpr Index AHEAD = 24;  // rows, at least, that are asked for before they are needed

struct Batch {
    const float* table;
    const std::int32_t* ids;
    Index examples, fields, width, first_trained;
    Index ahead;  // examples
};

// A row that m fields share has m times the gradient: m^2 times its square, of which the m fields together already
// gave m. Rare, so plain.
float repeated_share(const Batch& batch, const std::int32_t* ids, const float* sum) {
    float share = 0.0f;
    for (Index f = batch.first_trained; f < batch.fields; ++f) {
        Index others = 0;
        for (Index g = batch.first_trained; g < batch.fields; ++g) others += g != f && ids[g] == ids[f];
        if (!others) continue;
        const float* v = batch.table + ids[f] * batch.width + 1;
        float square = 1.0f;
        for (Index d = 0; d < batch.width - 1; ++d) square += (sum[d] - v[d]) * (sum[d] - v[d]);
        share += static_cast<float>(others) * square;
    }
    return share;
}

namespace narrow {
#define TARGET
#define LANES 4
#include "interactions_loops.h"
#undef LANES
#undef TARGET
}  // namespace narrow

#if HAS_WIDE
namespace wide {
#define TARGET WIDE
#define LANES 8
#include "interactions_loops.h"
#undef LANES
#undef TARGET
}  // namespace wide
#else
namespace wide = narrow;
#endif

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// `first_read` is the first field whose rows a pass goes to.
Batch batch_of(const Table<const float>& table, const Table<const std::int32_t>& ids, Index first_trained,
               Index first_read) {
    const auto examples = static_cast<Index>(ids.shape(0)), fields = static_cast<Index>(ids.shape(1));
    const auto width = static_cast<Index>(table.shape(1));
    const Index ahead = 1 + (AHEAD - 1) / std::max<Index>(fields - first_read, 1);
    return {table.data(), ids.data(), examples, fields, width, first_trained, ahead};
}

void fm_forward(Table<const float> table, Table<const std::int32_t> ids, Index first_trained, Flat<float> logits,
                Table<float> sums, Flat<float> squares, bool widely) {
    const Batch batch = batch_of(table, ids, first_trained, 0);
    float *logit = logits.data(), *sum = sums.data(), *square = squares.data();
    std::vector<std::int32_t> circle(2 * batch.fields + 16);
    nb::gil_scoped_release free;
    const auto forward = widely && machine_is_wide() ? wide::forward : narrow::forward;
    forward(batch, circle.data(), logit, sum, square);
}

void fm_scatter(Table<const float> table, Table<const std::int32_t> ids, Index first_trained,
                Flat<const float> coefficients, Table<const float> sums, Table<float> into,
                std::optional<Flat<float>> pulls, bool widely) {
    const Batch batch = batch_of(table, ids, first_trained, first_trained);
    const float *coefficient = coefficients.data(), *sum = sums.data();
    float *target = into.data(), *pull = pulls ? pulls->data() : nullptr;
    nb::gil_scoped_release free;
    const bool is_wide = widely && machine_is_wide();
    const auto whole = is_wide ? wide::scatter<false> : narrow::scatter<false>;
    const auto pulled = is_wide ? wide::scatter<true> : narrow::scatter<true>;
    (pull ? pulled : whole)(batch, coefficient, sum, target, pull);
}

}  // namespace

NB_MODULE(_interactions, module) {
    using nb::arg;
    module.def("fm_forward", &fm_forward, arg("table").noconvert(), arg("ids").noconvert(), arg("first_trained"),
               arg("logits").noconvert(), arg("sums").noconvert(), arg("squares").noconvert(), arg("wide") = true);
    module.def("fm_scatter", &fm_scatter, arg("table").noconvert(), arg("ids").noconvert(), arg("first_trained"),
               arg("coefficients").noconvert(), arg("sums").noconvert(), arg("into").noconvert(),
               arg("pulls").noconvert().none(), arg("wide") = true);
}
