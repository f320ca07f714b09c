// Sums over the cells that rows fall into, and over the rows that fall into cells: a sparse matrix of ones with as many
// in every row, times a vector, and its transpose times one.
// `reference_cells.py` says the same in NumPy, `cells.py` what each argument is and checks it.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>

namespace nb = nanobind;

namespace {

using Index = std::ptrdiff_t;
using Cells = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Seen as unsigned, a cell below 0 is a very large one.
inline bool is_within(std::int32_t cell, Index count) {
    return static_cast<std::uint32_t>(cell) < static_cast<std::uint64_t>(count);
}

bool add_cells(Cells cells, Flat<const float> by_cell, Flat<float> into) {
    const Index rows = static_cast<Index>(cells.shape(0)), tables = static_cast<Index>(cells.shape(1));
    const Index count = static_cast<Index>(by_cell.shape(0));
    const std::int32_t* cell = cells.data();
    const float* value = by_cell.data();
    float* total = into.data();
    nb::gil_scoped_release free;
    for (Index row = 0; row < rows; ++row, cell += tables) {
        float even = 0.0f, odd = 0.0f;  // two sums, so that neither waits for the other
        for (Index at = 0; at < tables; ++at) {
            if (!is_within(cell[at], count)) return false;
            (at & 1 ? odd : even) += value[cell[at]];
        }
        total[row] = even + odd;
    }
    return true;
}

bool add_rows_to_cells(Cells cells, Flat<const double> by_row, Flat<double> into) {
    const Index rows = static_cast<Index>(cells.shape(0)), tables = static_cast<Index>(cells.shape(1));
    const Index count = static_cast<Index>(into.shape(0));
    const std::int32_t* cell = cells.data();
    const double* value = by_row.data();
    double* total = into.data();
    nb::gil_scoped_release free;
    for (Index row = 0; row < rows; ++row, cell += tables)
        for (Index at = 0; at < tables; ++at) {
            if (!is_within(cell[at], count)) return false;
            total[cell[at]] += value[row];
        }
    return true;
}

}  // namespace

NB_MODULE(_cells, module) {
    using nb::arg;
    module.def("add_cells", &add_cells, arg("cells").noconvert(), arg("by_cell").noconvert(), arg("into").noconvert());
    module.def("add_rows_to_cells", &add_rows_to_cells, arg("cells").noconvert(), arg("by_row").noconvert(),
               arg("into").noconvert());
}
