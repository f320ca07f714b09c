// Squared norms of sums of outer products: |sum_t d_t a_t'|^2 = sum_st <a_s, a_t> <d_s, d_t>, of each example of a
// batch. `reference_grams.py` says the same in NumPy, `grams.py` what each argument is and checks it.
//
// Both Gram matrices are symmetric: one triangle of each is made, four rows by three, with its sums in registers, and
// nothing but the answer leaves the nearest cache. As two products of matrices it is twice the work, and both of them
// are written out.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "wide.h"

namespace nb = nanobind;

namespace {

constexpr Index ROWS = 4, COLUMNS = 3;  // of a tile: 12 vectors of sums, 4 of numbers
constexpr Index LANES = 8;
typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef float Four __attribute__((vector_size(4 * ROWS)));

INLINE Lanes load(const float* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

// The last vector of a row, which begins within the one before; of a row that is shorter, with zeros before it.
INLINE Lanes load_last(const float* row, Index width) {
    if (width >= LANES) return load(row + width - LANES);
    Lanes lanes = {};
    for (Index at = 0; at < width; ++at) lanes[LANES - width + at] = row[at];
    return lanes;
}

INLINE Four load_four(const float* from) {
    Four four;
    std::memcpy(&four, from, sizeof four);
    return four;
}

INLINE Four halved(Lanes v) {
    return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
}

// The sums over the lanes of each of four vectors.
INLINE Four totals(Lanes first, Lanes second, Lanes third, Lanes fourth) {
    const Four a = halved(first), b = halved(second), c = halved(third), d = halved(fourth);
    const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

// Into the second cache: the nearest one is full of what is read now.
INLINE void ask_for(const float* first, Index count) {
    for (Index at = 0; at < count; at += 16) __builtin_prefetch(first + at, 0, 2);
}

INLINE Index room(Index positions) { return (positions + ROWS - 1) / ROWS * ROWS; }

// gram[t][s] = <row s, row t> for all t <= s, and some others; `rows` has `positions` of `width` numbers. Rows of
// `gram` have room for whole tiles. Where `more` examples follow, theirs are asked for meanwhile.
INLINE void fill_triangle(const float* rows, Index positions, Index width, bool more, float* gram) {
    const Index whole = width / LANES * LANES, part = width - whole, last = positions - 1;
    Lanes counted;  // 1 where the last vector has what no other one has
    for (Index lane = 0; lane < LANES; ++lane) counted[lane] = lane >= LANES - part ? 1.0f : 0.0f;
    for (Index s = 0; s < positions; s += ROWS) {
        const float* one[ROWS];
        for (Index i = 0; i < ROWS; ++i) one[i] = rows + std::min(s + i, last) * width;
        const Index reach = std::min(s + ROWS, positions);
        if (more) ask_for(rows + (positions + s) * width, (reach - s) * width);
        for (Index t = 0; t < reach; t += COLUMNS) {
            const float* other[COLUMNS];
            for (Index j = 0; j < COLUMNS; ++j) other[j] = rows + std::min(t + j, last) * width;
            Lanes sums[COLUMNS][ROWS] = {};
            for (Index k = 0; k < whole; k += LANES) {
                Lanes right[COLUMNS];
                for (Index j = 0; j < COLUMNS; ++j) right[j] = load(other[j] + k);
                for (Index i = 0; i < ROWS; ++i) {
                    const Lanes left = load(one[i] + k);
                    for (Index j = 0; j < COLUMNS; ++j) sums[j][i] += left * right[j];
                }
            }
            if (part) {
                for (Index i = 0; i < ROWS; ++i) {
                    const Lanes left = load_last(one[i], width) * counted;
                    for (Index j = 0; j < COLUMNS; ++j) sums[j][i] += left * load_last(other[j], width);
                }
            }
            for (Index j = 0; j < COLUMNS; ++j) {
                const Four found = totals(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
                std::memcpy(gram + (t + j) * room(positions) + s, &found, sizeof found);
            }
        }
    }
}

struct Pass {
    const float *read, *gradient;
    Index positions, inputs, outputs;
    float shift;  // 1 with a bias, as if every position read a 1 too
    float *squares, *sizes;
};

INLINE void fill_squares(const Pass& pass, Index first, Index end) {
    const Index positions = pass.positions, row = room(positions), size = (positions + COLUMNS) * row;
    std::vector<float> scratch(2 * size);
    for (Index example = first; example < end; ++example) {
        const bool more = example + 1 < end;
        const float* read = pass.read + example * positions * pass.inputs;
        const float* gradient = pass.gradient + example * positions * pass.outputs;
        fill_triangle(read, positions, pass.inputs, more, scratch.data());
        fill_triangle(gradient, positions, pass.outputs, more, scratch.data() + size);
        double apart = 0.0, alike = 0.0;  // pairs of two positions, and of one with itself
        for (Index t = 0; t < positions; ++t) {
            const float *a = scratch.data() + t * row, *d = a + size;
            alike += (a[t] + pass.shift) * d[t];
            Index s = t + 1;
            for (; s < positions && s % ROWS; ++s) apart += (a[s] + pass.shift) * d[s];
            Four sums = {};
            for (; s + ROWS <= positions; s += ROWS) sums += (load_four(a + s) + pass.shift) * load_four(d + s);
            for (; s < positions; ++s) apart += (a[s] + pass.shift) * d[s];
            apart += (sums[0] + sums[1]) + (sums[2] + sums[3]);
        }
        pass.squares[example] = static_cast<float>(2.0 * apart + alike);
        pass.sizes[example] = static_cast<float>(alike);
    }
}

using Numbers = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Found = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void squared_products(Numbers read, Numbers gradient, bool bias, Found squares, Found sizes, Index threads, bool wide) {
    const Index examples = static_cast<Index>(read.shape(0));
    const Pass pass{read.data(),
                    gradient.data(),
                    static_cast<Index>(read.shape(1)),
                    static_cast<Index>(read.shape(2)),
                    static_cast<Index>(gradient.shape(2)),
                    bias ? 1.0f : 0.0f,
                    squares.data(),
                    sizes.data()};
    nb::gil_scoped_release released;
    const auto part = [&](Index first, Index end) {
        run(wide, [&]() INLINE_LAMBDA { fill_squares(pass, first, end); });
    };
    std::vector<std::thread> others;
    for (Index each = 1; each < threads; ++each)
        others.emplace_back(part, examples * each / threads, examples * (each + 1) / threads);
    part(0, examples / threads);
    for (auto& other : others) other.join();
}

}  // namespace

NB_MODULE(_grams, module) { module.def("squared_products", &squared_products); }
