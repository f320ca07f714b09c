// The loops of interactions.cpp, which includes this file once for each width of machine: LANES floats make a vector,
// and TARGET names the instructions. Vector types keep an example's sums in registers, which plain loops do not.

typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef std::int32_t Whole __attribute__((vector_size(4 * LANES)));

TARGET INLINE Lanes load(const float* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

// The last columns of a row, fewer than a vector: zeros fill it up.
TARGET INLINE Lanes load_part(const float* from, Index columns) {
    Lanes lanes = {};
    for (Index d = 0; d < columns; ++d) lanes[d] = from[d];
    return lanes;
}

TARGET INLINE float total(Lanes lanes) {
    float sum = 0.0f;
    for (Index lane = 0; lane < LANES; ++lane) sum += lanes[lane];
    return sum;
}

// What an example's embeddings add up to, some columns at a time.
struct Totals {
    Lanes paired, apart;  // |S|^2 - sum_f |v_f|^2, and sum over trained f of |S - v_f|^2, lane by lane
};

// VECTORS whole vectors of columns from `column` on, or (0 VECTORS) the `part` last ones.
template <int VECTORS>
TARGET INLINE void sum_panel(const Batch batch, const std::int32_t* ids, Index column, Index part, float* sums,
                             Totals& totals) {
    constexpr int COUNT = VECTORS ? VECTORS : 1;
    const float* columns = batch.table + 1 + column;
    Lanes sum[COUNT] = {}, own[COUNT] = {}, apart[COUNT] = {};
    for (Index f = 0; f < batch.fields; ++f) {
        const float* row = columns + ids[f] * batch.width;
        for (int k = 0; k < COUNT; ++k) {
            const Lanes v = VECTORS ? load(row + k * LANES) : load_part(row, part);
            sum[k] += v;
            own[k] += v * v;
        }
    }
    for (Index f = batch.first_trained; f < batch.fields; ++f) {  // the rows are in cache by now
        const float* row = columns + ids[f] * batch.width;
        for (int k = 0; k < COUNT; ++k) {
            const Lanes rest = sum[k] - (VECTORS ? load(row + k * LANES) : load_part(row, part));
            apart[k] += rest * rest;
        }
    }
    for (int k = 0; k < COUNT; ++k) {
        totals.apart += apart[k];
        totals.paired += sum[k] * sum[k] - own[k];
        std::memcpy(sums + column + k * LANES, &sum[k], VECTORS ? sizeof sum[k] : part * sizeof(float));
    }
}

// Does a row come twice? Each id is compared with the half of the others that follow it in a circle. `circle` has room
// for the ids, half of them again, and two vectors.
TARGET INLINE bool has_repeats(const std::int32_t* ids, Index count, std::int32_t* circle) {
    const Index half = count / 2;
    std::memcpy(circle, ids, count * sizeof *ids);
    for (Index k = count; k < count + half + 2 * LANES; ++k) circle[k] = circle[k - count];
    Whole same = {};
    for (Index k = 0; k < count; k += LANES) {
        Whole these, others;
        std::memcpy(&these, circle + k, sizeof these);
        for (Index apart = 1; apart <= half; ++apart) {
            std::memcpy(&others, circle + k + apart, sizeof others);
            same |= these == others;
        }
    }
    std::int32_t any = 0;
    for (Index lane = 0; lane < LANES; ++lane) any |= same[lane];
    return any;
}

TARGET void forward(const Batch batch, std::int32_t* circle, float* logits, float* sums, float* squares) {
    const Index fields = batch.fields, width = batch.width, dimension = width - 1;
    const Index trained = fields - batch.first_trained;
    for (Index i = 0; i < batch.examples; ++i) {
        const std::int32_t* ids = batch.ids + i * fields;
        if (i + batch.ahead < batch.examples)
            for (Index f = 0; f < fields; ++f)
                prefetch(batch.table + ids[batch.ahead * fields + f] * width, width * sizeof(float));
        float* sum = sums + i * dimension;
        Totals totals = {};
        Index column = 0;
        for (; column + 4 * LANES <= dimension; column += 4 * LANES)
            sum_panel<4>(batch, ids, column, 0, sum, totals);
        for (; column + 2 * LANES <= dimension; column += 2 * LANES)
            sum_panel<2>(batch, ids, column, 0, sum, totals);
        for (; column + LANES <= dimension; column += LANES) sum_panel<1>(batch, ids, column, 0, sum, totals);
        if (column < dimension) sum_panel<0>(batch, ids, column, dimension - column, sum, totals);
        float linear = 0.0f;
        for (Index f = 0; f < fields; ++f) linear += batch.table[ids[f] * width];
        logits[i] = linear + 0.5f * total(totals.paired);
        squares[i] = static_cast<float>(trained) + total(totals.apart);
        if (trained > MANY_FIELDS)
            squares[i] += sorted_share(batch, ids, sum, circle);
        else if (trained > 1 && has_repeats(ids + batch.first_trained, trained, circle))
            squares[i] += repeated_share(batch, ids, sum);
    }
}

// Adds c S, or (not PULLED) c (S - v), to each trained row: VECTORS vectors of columns, or (0 VECTORS) the `part` last
// ones. The first panel of an example also adds c to the linear weights and the pulls, and asks for later rows.
template <bool PULLED, int VECTORS>
TARGET INLINE void add_panel(const Batch batch, Index example, Index column, Index part, float c, const float* sums,
                             float* into, float* pulls) {
    const std::int32_t* ids = batch.ids + example * batch.fields;
    const bool more = column == 0 && example + batch.ahead < batch.examples;
    Lanes sum[VECTORS + 1];  // one is never used: arrays of none are not C++
    for (int k = 0; k < VECTORS; ++k) sum[k] = load(sums + column + k * LANES);
    for (Index f = batch.first_trained; f < batch.fields; ++f) {
        const Index row = ids[f] * batch.width;
        if (more) {
            const Index later = ids[f + batch.ahead * batch.fields];
            prefetch(into + later * batch.width, batch.width * sizeof(float));
            if (PULLED)
                __builtin_prefetch(pulls + later);
            else
                prefetch(batch.table + later * batch.width, batch.width * sizeof(float));
        }
        if (column == 0) {
            into[row] += c;
            if (PULLED) pulls[ids[f]] += c;
        }
        float* to = into + row + 1 + column;
        const float* v = batch.table + row + 1 + column;
        for (int k = 0; k < VECTORS; ++k) {
            const Lanes rest = PULLED ? sum[k] : sum[k] - load(v + k * LANES);
            const Lanes total = load(to + k * LANES) + c * rest;
            std::memcpy(to + k * LANES, &total, sizeof total);
        }
        if (!VECTORS)
            for (Index d = 0; d < part; ++d) to[d] += c * (PULLED ? sums[column + d] : sums[column + d] - v[d]);
    }
}

template <bool PULLED>
TARGET void scatter(const Batch batch, const float* coefficients, const float* sums, float* into, float* pulls) {
    const Index dimension = batch.width - 1;
    for (Index i = 0; i < batch.examples; ++i) {
        const float c = coefficients[i];
        const float* sum = sums + i * dimension;
        Index column = 0;
        for (; column + 4 * LANES <= dimension; column += 4 * LANES)
            add_panel<PULLED, 4>(batch, i, column, 0, c, sum, into, pulls);
        for (; column + 2 * LANES <= dimension; column += 2 * LANES)
            add_panel<PULLED, 2>(batch, i, column, 0, c, sum, into, pulls);
        for (; column + LANES <= dimension; column += LANES)
            add_panel<PULLED, 1>(batch, i, column, 0, c, sum, into, pulls);
        if (column < dimension || dimension == 0)
            add_panel<PULLED, 0>(batch, i, column, dimension - column, c, sum, into, pulls);
    }
}

typedef float Half __attribute__((vector_size(2 * LANES)));
typedef double Doubles __attribute__((vector_size(4 * LANES)));

TARGET INLINE Doubles widen(const float* from) {
#if LANES == 8  // compilers make five instructions of the general form
    return _mm256_cvtps_pd(_mm_loadu_ps(from));
#else
    Half half;
    std::memcpy(&half, from, sizeof half);
    return __builtin_convertvector(half, Doubles);
#endif
}

// The sum over rows, whose first reader is one example, of |A - c v|^2 in VECTORS vectors of columns, lane by lane: with
// A = sum residual_i S_i over a row's readers and c = sum residual_i, its pull. Of one reader that is residual^2
// |S - v|^2. All of it is in doubles, in which products of two floats are exact.
template <int VECTORS>
TARGET INLINE Doubles square_panel(const Batch batch, const Readers& readers, Index from, Index to, Index column,
                                   Index past, RowsAhead& ahead, const float* residuals, const float* sums) {
    constexpr int CHAINS = VECTORS < 4 ? VECTORS : 4;  // of sums that do not wait for one another
    const Index dimension = batch.width - 1, example = readers.row(from).example;
    const double residual = residuals[example];
    Doubles sum[VECTORS], apart[CHAINS] = {}, shared = {};
    for (int k = 0; k < VECTORS; ++k) sum[k] = widen(sums + example * dimension + column + k * LANES / 2);
    for (Index index = from; index < to; ++index) {
        const Readers::Row& read = readers.row(index);
        const float* v = batch.table + read.row * batch.width + 1 + column;
        if (column == 0) ahead.ask(batch, past + read.place + AHEAD);
        if (read.more < 0) {
            for (int k = 0; k < VECTORS; ++k) {
                const Doubles rest = sum[k] - widen(v + k * LANES / 2);
                apart[k % CHAINS] += rest * rest;
            }
            continue;
        }
        Doubles gathered[VECTORS];
        for (int k = 0; k < VECTORS; ++k) gathered[k] = residual * sum[k];
        for (Index at = read.more; at >= 0; at = readers.reader(at).next) {
            const Index other = readers.reader(at).example;
            const double further = residuals[other];
            const float* its = sums + other * dimension + column;
            for (int k = 0; k < VECTORS; ++k) gathered[k] += further * widen(its + k * LANES / 2);
        }
        for (int k = 0; k < VECTORS; ++k) {
            const Doubles rest = gathered[k] - read.pull * widen(v + k * LANES / 2);
            shared += rest * rest;
        }
    }
    for (int k = 1; k < CHAINS; ++k) apart[0] += apart[k];
    return shared + residual * residual * apart[0];
}

// The same of a single row and column, for the last columns.
TARGET INLINE double square_column(const Batch batch, const Readers& readers, const Readers::Row& read, Index column,
                                   const float* residuals, const float* sums) {
    const float* columns = sums + column;
    const Index dimension = batch.width - 1;
    double gathered = static_cast<double>(residuals[read.example]) * columns[read.example * dimension];
    for (Index at = read.more; at >= 0; at = readers.reader(at).next) {
        const Index example = readers.reader(at).example;
        gathered += static_cast<double>(residuals[example]) * columns[example * dimension];
    }
    const double rest = gathered - read.pull * batch.table[read.row * batch.width + 1 + column];
    return rest * rest;
}

// The squared norm of what a group adds to the rows it reads. `past` is the places of all groups before it.
TARGET double square_rows(const Batch batch, const Readers& readers, Index past, RowsAhead& ahead,
                          const float* residuals, const float* sums) {
    constexpr Index COLUMNS = LANES / 2;
    const Index dimension = batch.width - 1, rows = readers.row_count();
    Doubles squares = {};
    double total = 0.0;
    for (Index from = 0, to; from < rows; from = to) {
        const Index example = readers.row(from).example;
        for (to = from; to < rows && readers.row(to).example == example; ++to)
            total += readers.row(to).pull * readers.row(to).pull;
        Index column = 0;
        for (; column + 8 * COLUMNS <= dimension; column += 8 * COLUMNS)
            squares += square_panel<8>(batch, readers, from, to, column, past, ahead, residuals, sums);
        for (; column + 2 * COLUMNS <= dimension; column += 2 * COLUMNS)
            squares += square_panel<2>(batch, readers, from, to, column, past, ahead, residuals, sums);
        for (; column < dimension; ++column)
            for (Index index = from; index < to; ++index)
                total += square_column(batch, readers, readers.row(index), column, residuals, sums);
    }
    for (Index lane = 0; lane < COLUMNS; ++lane) total += squares[lane];
    return total;
}
