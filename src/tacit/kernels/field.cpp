// Sums, evaluations and quotients in the field of p = 2^64 - 2^32 + 1, for proofs that digits are in range.
// `reference_field.py` says the same with whole numbers of Python, `field.py` what each argument is and checks it.
//
// Modulo p, 2^64 is 2^32 - 1 and 2^96 is -1, so a product of 128 bits comes down without a division. p - 1 has the
// factor 2^32: there are roots of unity for transforms of every size that fits a report.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace {

using Index = std::ptrdiff_t;
using Word = std::uint64_t;
__extension__ typedef unsigned __int128 Wide;

using Flat = nb::ndarray<const Word, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const Word, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutFlat = nb::ndarray<Word, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutTable = nb::ndarray<Word, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr Word P = 0xFFFFFFFF00000001u;
constexpr Word WRAP = 0xFFFFFFFFu;  // 2^64 modulo p
constexpr Word GENERATOR = 7;

// No branches: they would depend on secrets, and no processor guesses them.
inline Word ones_if(bool condition) { return ~static_cast<Word>(condition) + 1; }

inline Word reduced(Wide x) {
    const Word low = static_cast<Word>(x), high = static_cast<Word>(x >> 64);
    Word down = low - (high >> 32);  // 2^96 is -1
    down -= WRAP & ones_if(low < (high >> 32));
    const Word middle = (high & WRAP) * WRAP;
    Word sum = down + middle;
    sum += WRAP & ones_if(sum < middle);
    return sum - (P & ones_if(sum >= P));
}

inline Word subtract(Word a, Word b) { return a - b + (P & ones_if(a < b)); }
inline Word add(Word a, Word b) { return subtract(a, P - b); }  // P - 0 is P, and a - P + P is a
inline Word multiply(Word a, Word b) { return reduced(static_cast<Wide>(a) * b); }

Word power(Word base, Word exponent) {
    Word result = 1;
    for (; exponent; exponent >>= 1, base = multiply(base, base))
        if (exponent & 1) result = multiply(result, base);
    return result;
}

Word inverse(Word a) { return power(a, P - 2); }
Word root_of_order(Index order) { return power(GENERATOR, (P - 1) / static_cast<Word>(order)); }

// A sum of products that is brought down once, at its end.
struct Products {
    Wide low = 0, high = 0;
    void take(Word a, Word b) {
        const Wide product = static_cast<Wide>(a) * b;
        low += static_cast<Word>(product);
        high += static_cast<Word>(product >> 64);
    }
    Word total() const { return add(multiply(reduced(high), WRAP), reduced(low)); }
};

std::vector<Word> powers(Word base, Index count) {
    std::vector<Word> out(static_cast<std::size_t>(count));
    Word next = 1;
    for (Word& each : out) {
        each = next;
        next = multiply(next, base);
    }
    return out;
}

// Values of a polynomial at the powers of a root of order `size`, from its coefficients, in place; with the inverse
// root the way back, but for a factor `size`.
class Transform {
  public:
    Transform(Index size, Word root) : size_(size), root_(powers(root, size)) {}

    void operator()(Word* a) const {
        for (Index i = 1, j = 0; i < size_; ++i) {  // bits of the places, reversed
            Index bit = size_ >> 1;
            for (; j & bit; bit >>= 1) j ^= bit;
            j ^= bit;
            if (i < j) std::swap(a[i], a[j]);
        }
        for (Index half = 1; half < size_; half *= 2)
            for (Index start = 0; start < size_; start += 2 * half)
                for (Index k = 0; k < half; ++k) {
                    const Word u = a[start + k];
                    const std::size_t turn = static_cast<std::size_t>(k * (size_ / (2 * half)));
                    const Word v = multiply(a[start + k + half], root_[turn]);
                    a[start + k] = add(u, v);
                    a[start + k + half] = subtract(u, v);
                }
    }

  private:
    Index size_;
    std::vector<Word> root_;
};

// x (x - 1) ... (x - most): zero just for 0..most. By pairs, (x - i) (x - (most - i)) = x (x - most) + i (most - i).
inline Word out_of_range(Word x, Word most) {
    const Word ends = multiply(x, subtract(x, most));
    Word product = ends;
    for (Word i = 1; 2 * i < most; ++i) product = multiply(product, add(ends, i * (most - i)));
    return most % 2 ? product : multiply(product, subtract(x, most / 2));
}

// A row: digits, then for each proof the value of every wire at 1 and the quotient's coefficients.
struct Shape {
    Index digits, most, wires, size;
    Index quotient() const { return most * (size - 1) + 1; }
    Index proof() const { return wires + quotient(); }
};

// The wires through their digits, spelled at places where none of the domain is, and what is fixed there.
class Coset {
  public:
    explicit Coset(const Shape& shape)
        : shape_(shape),
          size_(size_for(shape)),
          to_coefficients_(shape.size, inverse(root_of_order(shape.size))),
          to_values_(size_, root_of_order(size_)),
          back_(size_, inverse(root_of_order(size_))),
          shift_(powers(root_of_order(2 * size_), size_)),
          unshift_(powers(inverse(root_of_order(2 * size_)), size_)),
          over_vanishing_(static_cast<std::size_t>(size_)),
          scaled_shift_(static_cast<std::size_t>(shape.size)),
          first_(static_cast<std::size_t>(size_)),
          wires_(static_cast<std::size_t>(shape.wires * size_)),
          values_(static_cast<std::size_t>(size_)) {
        const Word per_size = inverse(static_cast<Word>(shape.size)), per_own = inverse(static_cast<Word>(size_));
        for (std::size_t k = 0; k < static_cast<std::size_t>(shape.size); ++k)
            first_[k] = scaled_shift_[k] = multiply(per_size, shift_[k]);
        to_values_(first_.data());  // 1 at the domain's first place and 0 at the others: all coefficients are 1 / size
        const std::vector<Word> roots = powers(root_of_order(size_), size_);
        const std::size_t period = roots.size() / static_cast<std::size_t>(shape.size);  // of x^size over the places
        std::vector<Word> over(period);
        for (std::size_t k = 0; k < roots.size(); ++k) {
            const Word place = multiply(shift_[1], roots[k]);
            if (k < period) over[k] = inverse(subtract(power(place, static_cast<Word>(shape.size)), 1));
            over_vanishing_[k] = multiply(subtract(place, 1), over[k % period]);  // (x - 1) / (x^size - 1)
        }
        for (Word& each : unshift_) each = multiply(each, per_own);
    }

    void spell(const Word* digits) {
        for (Index wire = 0; wire < shape_.wires; ++wire) {
            Word* own = wires_.data() + wire * size_;
            for (Index k = 0; k < size_; ++k) own[k] = 0;
            for (Index k = 1, i = wire; i < shape_.digits; ++k, i += shape_.wires) own[k] = digits[i];
            to_coefficients_(own);
            for (Index k = 0; k < shape_.size; ++k)
                own[k] = multiply(own[k], scaled_shift_[static_cast<std::size_t>(k)]);
            to_values_(own);
        }
    }

    void quotient(const Word* seeds, Word challenge, Word* out) {
        const Word most = static_cast<Word>(shape_.most);
        for (Word& each : values_) each = 0;
        for (Index wire = shape_.wires; wire-- > 0;)
            for (Index k = 0; k < size_; ++k) {
                const std::size_t at = static_cast<std::size_t>(k);
                const Word bare = wires_[static_cast<std::size_t>(wire * size_ + k)];
                const Word value = add(bare, multiply(seeds[wire], first_[at]));
                values_[at] = add(multiply(values_[at], challenge), out_of_range(value, most));
            }
        for (std::size_t k = 0; k < values_.size(); ++k) values_[k] = multiply(values_[k], over_vanishing_[k]);
        back_(values_.data());
        for (Index k = 0; k < shape_.quotient(); ++k) {
            const std::size_t at = static_cast<std::size_t>(k);
            out[k] = multiply(values_[at], unshift_[at]);
        }
    }

  private:
    static Index size_for(const Shape& shape) {
        Index size = shape.size;
        while (size < shape.quotient()) size *= 2;
        return size;
    }

    Shape shape_;
    Index size_;
    Transform to_coefficients_, to_values_, back_;
    std::vector<Word> shift_, unshift_, over_vanishing_, scaled_shift_, first_, wires_, values_;
};

void weighted_sums(Table table, Flat weights, OutTable out) {
    const Index rows = static_cast<Index>(table.shape(0)), width = static_cast<Index>(table.shape(1));
    const Index sums = static_cast<Index>(out.shape(1)), length = static_cast<Index>(weights.shape(0));
    const Word *from = table.data(), *weight = weights.data();
    Word* to = out.data();
    nb::gil_scoped_release free;
    for (Index row = 0; row < rows; ++row, from += width)
        for (Index sum = 0; sum < sums; ++sum) {
            Products products;
            for (Index i = 0; i < length; ++i) products.take(from[sum * length + i], weight[i]);
            *to++ = products.total();
        }
}

void fill_quotients(OutTable table, Table challenges, Index digits, Index most, Index wires, Index size) {
    const Shape shape{digits, most, wires, size};
    const Index rows = static_cast<Index>(table.shape(0)), width = static_cast<Index>(table.shape(1));
    const Index proofs = static_cast<Index>(challenges.shape(1));
    Word* row = table.data();
    const Word* challenge = challenges.data();
    nb::gil_scoped_release free;
    Coset coset(shape);
    for (Index i = 0; i < rows; ++i, row += width) {
        coset.spell(row);
        for (Index proof = 0; proof < proofs; ++proof) {
            Word* seeds = row + digits + proof * shape.proof();
            coset.quotient(seeds, *challenge++, seeds + wires);
        }
    }
}

// False where a point is in the domain, and then nothing is to be used.
bool evaluations(Table table, Table points, Index digits, Index most, Index wires, Index size, OutTable out) {
    const Shape shape{digits, most, wires, size};
    const Index rows = static_cast<Index>(table.shape(0)), width = static_cast<Index>(table.shape(1));
    const Index proofs = static_cast<Index>(points.shape(1));
    const Word *row = table.data(), *point = points.data();
    Word* to = out.data();
    nb::gil_scoped_release free;
    const std::vector<Word> domain = powers(root_of_order(size), size);
    const Word per_size = inverse(static_cast<Word>(size));
    const std::size_t count = domain.size();
    std::vector<Word> basis(count), before(count);
    for (Index i = 0; i < rows; ++i, row += width)
        for (Index proof = 0; proof < proofs; ++proof) {
            const Word at = *point++, vanish = subtract(power(at, static_cast<Word>(size)), 1);
            if (!vanish) return false;
            // Lagrange: (x^size - 1) a / (size (x - a)) for each a of the domain, by one inversion for all.
            Word product = 1;
            for (std::size_t k = 0; k < count; ++k) {
                before[k] = product;
                product = multiply(product, subtract(at, domain[k]));
            }
            Word rest = multiply(inverse(product), multiply(vanish, per_size));
            for (std::size_t k = count; k-- > 0;) {
                basis[k] = multiply(multiply(rest, before[k]), domain[k]);
                rest = multiply(rest, subtract(at, domain[k]));
            }
            const Word over_first = multiply(basis[0], static_cast<Word>(size));  // (x^size - 1) / (x - 1)
            const Word* seeds = row + digits + proof * shape.proof();
            for (Index wire = 0; wire < wires; ++wire) {
                Products products;
                products.take(basis[0], seeds[wire]);
                const Word* weight = basis.data() + 1;
                for (Index d = wire; d < digits; d += wires) products.take(*weight++, row[d]);
                *to++ = products.total();
            }
            Word value = 0;
            for (Index k = shape.quotient(); k-- > 0;) value = add(multiply(value, at), seeds[wires + k]);
            *to++ = multiply(value, over_first);
        }
    return true;
}

void balances(Table values, Flat challenges, Index most, OutFlat out) {
    const Index rows = static_cast<Index>(values.shape(0)), wires = static_cast<Index>(values.shape(1)) - 1;
    const Word *row = values.data(), *challenge = challenges.data();
    Word* to = out.data();
    nb::gil_scoped_release free;
    for (Index i = 0; i < rows; ++i, row += wires + 1) {
        Word sum = 0;
        for (Index wire = wires; wire-- > 0;)
            sum = add(multiply(sum, challenge[i]), out_of_range(row[wire], static_cast<Word>(most)));
        to[i] = subtract(sum, row[wires]);
    }
}

}  // namespace

NB_MODULE(_field, module) {
    using nb::arg;
    module.def("weighted_sums", weighted_sums, arg("table").noconvert(), arg("weights").noconvert(),
               arg("out").noconvert());
    module.def("fill_quotients", fill_quotients, arg("table").noconvert(), arg("challenges").noconvert(),
               arg("digits"), arg("most"), arg("wires"), arg("size"));
    module.def("evaluations", evaluations, arg("table").noconvert(), arg("points").noconvert(), arg("digits"),
               arg("most"), arg("wires"), arg("size"), arg("out").noconvert());
    module.def("balances", balances, arg("values").noconvert(), arg("challenges").noconvert(), arg("most"),
               arg("out").noconvert());
}
