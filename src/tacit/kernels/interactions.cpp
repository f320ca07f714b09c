// The factorization machine's passes over a batch: forward with gradient norms, norms of whole groups of examples, and
// the gradient's scatter.
// `reference_training.py` says the same in NumPy, `training.py` what each argument is and checks it.
//
// A table row is (linear weight, embedding). With S the sum of an example's embeddings v_f, the logit's gradient
// in row f is (1, S - v_f). Its norm needs S and the rows, which the forward pass has in cache. Over a batch, row v
// gets sum c_i S_i - (sum c_i) v: a scatter may leave v to the end and keep only the sum of the c_i, the row's pull. So
// it is for a group of examples, whose norm needs each row's readers together: a small hash table of rows finds them.

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
constexpr Index MANY_FIELDS = 256;  // above it, to compare each with each takes longer than to sort

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

// The same of many fields, whose rows are put in order first: `circle` has room for them.
float sorted_share(const Batch& batch, const std::int32_t* ids, const float* sum, std::int32_t* circle) {
    std::int32_t* end = std::copy(ids + batch.first_trained, ids + batch.fields, circle);
    std::sort(circle, end);
    float share = 0.0f;
    for (std::int32_t* first = circle; first != end;) {
        std::int32_t* next = first + 1;
        while (next != end && *next == *first) ++next;
        if (const Index times = next - first; times > 1) {
            const float* v = batch.table + *first * batch.width + 1;
            float square = 1.0f;
            for (Index d = 0; d < batch.width - 1; ++d) square += (sum[d] - v[d]) * (sum[d] - v[d]);
            share += static_cast<float>(times * (times - 1)) * square;
        }
        first = next;
    }
    return share;
}

// The distinct rows that a group of examples reads, each with its readers in the order they came, and its pull, the sum
// of their residuals. Most rows have one reader; further ones are in a list. The tables are for the largest group: a
// smaller one uses their beginning, which stays in cache, and what earlier groups left there counts as empty.
class Readers {
  public:
    struct Row {
        Index row, place, example;  // of the first reader
        Index more, last;           // further readers, or -1, and the last of them
        double pull;
    };
    struct Reader {
        Index example, next;
    };

    explicit Readers(Index most_places) : slots_(slots_for(most_places)), rows_(most_places), more_(most_places) {}

    void begin(Index places) {
        mask_ = slots_for(places) - 1;
        places_ = row_count_ = more_count_ = 0;
        ++group_;
    }

    INLINE void add(std::int32_t row, Index example, float residual) {
        const Index place = places_++;
        Index at = static_cast<Index>((static_cast<std::uint64_t>(row) * 0x9E3779B97F4A7C15u) >> 32) & mask_;
        for (;; at = (at + 1) & mask_) {
            const std::uint64_t slot = slots_[at];
            if (slot >> 32 != group_) {
                slots_[at] = group_ << 32 | static_cast<std::uint64_t>(row_count_);
                rows_[row_count_++] = {row, place, example, -1, -1, residual};
                return;
            }
            Row& found = rows_[slot & 0xFFFFFFFFu];
            if (found.row != row) continue;
            more_[more_count_] = {example, -1};
            (found.more < 0 ? found.more : more_[found.last].next) = more_count_;
            found.last = more_count_++;
            found.pull += residual;
            return;
        }
    }

    Index row_count() const { return row_count_; }
    const Row& row(Index index) const { return rows_[index]; }
    const Reader& reader(Index index) const { return more_[index]; }

  private:
    // A power of two, at most a quarter of them taken: a wrong guess at what is in one costs more than a smaller table.
    static Index slots_for(Index places) {
        Index slots = 16;
        while (slots < 4 * places) slots *= 2;
        return slots;
    }

    std::vector<std::uint64_t> slots_;  // a group, from 1 on, and the number of one of its rows
    std::vector<Row> rows_;
    std::vector<Reader> more_;
    Index mask_ = 0, places_ = 0, row_count_ = 0, more_count_ = 0;
    std::uint64_t group_ = 0;
};

// Asks for the trained rows that examples read, in their order, each once.
struct RowsAhead {
    Index asked = 0, example = 0, field = 0;

    INLINE void ask(const Batch& batch, Index places) {
        for (; asked < places && example < batch.examples; ++asked) {
            const Index row = batch.ids[example * batch.fields + batch.first_trained + field];
            prefetch(batch.table + row * batch.width, batch.width * sizeof(float));
            if (++field == batch.fields - batch.first_trained) field = 0, ++example;
        }
    }
};

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

// Wide vectors pay where an embedding fills one: a shorter one goes through in single numbers, or in narrow vectors.
bool is_wide(const Batch& batch, bool widely) { return widely && machine_is_wide() && batch.width > 8; }

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
    const auto forward = is_wide(batch, widely) ? wide::forward : narrow::forward;
    forward(batch, circle.data(), logit, sum, square);
}

void fm_scatter(Table<const float> table, Table<const std::int32_t> ids, Index first_trained,
                Flat<const float> coefficients, Table<const float> sums, Table<float> into,
                std::optional<Flat<float>> pulls, bool widely) {
    const Batch batch = batch_of(table, ids, first_trained, first_trained);
    const float *coefficient = coefficients.data(), *sum = sums.data();
    float *target = into.data(), *pull = pulls ? pulls->data() : nullptr;
    nb::gil_scoped_release free;
    const bool wider = is_wide(batch, widely);
    const auto whole = wider ? wide::scatter<false> : narrow::scatter<false>;
    const auto pulled = wider ? wide::scatter<true> : narrow::scatter<true>;
    (pull ? pulled : whole)(batch, coefficient, sum, target, pull);
}

void fm_group_squares(Table<const float> table, Table<const std::int32_t> ids, Index first_trained,
                      Flat<const float> residuals, Table<const float> sums, Flat<const std::int64_t> groups,
                      Flat<double> squares, bool widely) {
    const Batch batch = batch_of(table, ids, first_trained, first_trained);
    const float *residual = residuals.data(), *sum = sums.data();
    const std::int64_t* group = groups.data();
    double* square = squares.data();
    const Index trained = batch.fields - first_trained;
    nb::gil_scoped_release free;
    const auto past_group = [&](Index start) {
        Index past = start + 1;
        while (past < batch.examples && group[past] == group[start]) ++past;
        return past;
    };
    Index largest = 0;
    for (Index start = 0, past; start < batch.examples; start = past) {
        past = past_group(start);
        largest = std::max(largest, past - start);
    }
    Readers readers(largest * trained);
    RowsAhead ahead;
    const auto square_rows = widely && machine_is_wide() ? wide::square_rows : narrow::square_rows;
    std::fill(square, square + squares.shape(0), 0.0);
    for (Index start = 0, past; start < batch.examples; start = past) {
        past = past_group(start);
        readers.begin((past - start) * trained);
        for (Index i = start; i < past; ++i)
            for (Index f = first_trained; f < batch.fields; ++f)
                readers.add(batch.ids[i * batch.fields + f], i, residual[i]);
        square[group[start]] = square_rows(batch, readers, start * trained, ahead, residual, sum);
    }
}

}  // namespace

NB_MODULE(_interactions, module) {
    using nb::arg;
    module.def("fm_forward", &fm_forward, arg("table").noconvert(), arg("ids").noconvert(), arg("first_trained"),
               arg("logits").noconvert(), arg("sums").noconvert(), arg("squares").noconvert(), arg("wide") = true);
    module.def("fm_scatter", &fm_scatter, arg("table").noconvert(), arg("ids").noconvert(), arg("first_trained"),
               arg("coefficients").noconvert(), arg("sums").noconvert(), arg("into").noconvert(),
               arg("pulls").noconvert().none(), arg("wide") = true);
    module.def("fm_group_squares", &fm_group_squares, arg("table").noconvert(), arg("ids").noconvert(),
               arg("first_trained"), arg("residuals").noconvert(), arg("sums").noconvert(), arg("groups").noconvert(),
               arg("squares").noconvert(), arg("wide") = true);
}
