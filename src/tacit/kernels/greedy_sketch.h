// Sketches of dense values, to bound gains by reading a fraction of the memory, and so in a fraction of the time.
//
// In context c a value counts in steps of step[c] = scale[c] / 255, rounded up, and the best so far rounded down.
// Peaks: one byte for each GROUP of contexts, the most steps of an ad there. As if it had so many in all of the group, a
// table says what the group gains at most. It dismisses the many ads that are nowhere near the best.
// Rows: one byte for each value; what an ad has above the scale is added whole: (v - b)+ <= (min(v, s) - b)+ + (v - s)+.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "wide.h"

namespace {

constexpr Index SAMPLED = 256;   // rows that the scale of a context is taken from
constexpr float HEADROOM = 1.25f;  // of the scale above what the sample holds
constexpr float ROUND_UP = 0.9999f;
constexpr Index GROUP = 16;  // contexts in a group, about
constexpr int STEPS = 256;
constexpr Index CHUNK = 256;  // so many products below 2^23 add up to less than 2^31

template <class T>
class Sketch {
    const T* values_;  // (ads, contexts)
    Index contexts_;
    std::vector<float> scale_, steps_;      // steps_ = 1 / step, 0 where the scale is
    std::vector<double> weight_;
    std::vector<std::int16_t> whole_;       // weight x step in units of unit_, rounded up
    std::vector<std::uint8_t> best_;        // in steps, rounded down
    std::uint8_t* rows_;                    // (drawn, contexts) in the order in which they are drawn
    std::vector<std::int32_t> place_;       // of each ad among the rows, -1 where it was not drawn
    std::vector<double> excess_;            // (drawn,) what an ad has above the scale
    Index groups_ = 0;
    std::vector<std::uint8_t> peaks_;           // (ads, groups), or empty
    std::vector<float> table_, tabled_, most_;  // (groups, STEPS) for these best steps (contexts,); scratch
    double unit_ = 0, slack_ = 0;
    bool all_scaled_ = true;

    // The best so far in steps, never above it.
    INLINE double best_steps(const double* best, Index c) const {
        return std::min(std::min(best[c], static_cast<double>(scale_[c])) * steps_[c] * (1 - 2e-6), 255.0);
    }

  public:
    Sketch(const T* values, Index ads, Index contexts, const double* weight, std::uint8_t* room)
        : values_(values), contexts_(contexts), scale_(contexts, 0.0f),
          steps_(contexts, 0.0f), weight_(weight, weight + contexts), whole_(contexts, 0), best_(contexts, 0),
          rows_(room), place_(room ? ads : 0, -1) {
        if (!room) return;
        const Index stride = std::max<Index>(1, ads / SAMPLED);
        for (Index a = 0; a < ads; a += stride)
            for (Index c = 0; c < contexts; ++c)
                scale_[c] = std::max(scale_[c], static_cast<float>(values[a * contexts + c]));
        double largest = 0, all = 0;
        for (Index c = 0; c < contexts; ++c) {
            scale_[c] *= HEADROOM;
            const float steps = 255.0f / scale_[c] * (1 + 1e-6f);
            const bool usable = std::isfinite(scale_[c]) && std::isfinite(steps) && steps > 0;
            scale_[c] = usable ? scale_[c] : 0.0f;
            steps_[c] = usable ? steps : 0.0f;
            all_scaled_ &= usable;
            largest = std::max(largest, weight[c] * scale_[c] / 255);
            all += weight[c] * scale_[c] / 255;
        }
        unit_ = largest / 32766;
        if (!(unit_ > 1e-290)) rows_ = nullptr;  // nothing to tell apart, or too small to be counted in units
        slack_ = all * 2 * (1 - ROUND_UP);
        for (Index c = 0; c < contexts; ++c)
            whole_[c] = rows_ ? static_cast<std::int16_t>(std::ceil(weight[c] * scale_[c] / 255 / unit_)) : 0;
    }

    // Room for the peaks of all ads, if they can tell anything. Context c is in group c % groups_.
    void open_peaks(Index ads) {
        if (!rows_ || !all_scaled_) return;
        groups_ = (contexts_ / GROUP / 64 + 1) * 64;
        peaks_.resize(static_cast<std::size_t>(ads * groups_));
        table_.assign(static_cast<std::size_t>(groups_ * STEPS), 0.0f);
        std::fill_n(table_.begin(), std::min(groups_, contexts_) * STEPS, std::numeric_limits<float>::infinity());
        most_.resize(static_cast<std::size_t>(groups_));
        tabled_.assign(static_cast<std::size_t>(contexts_), -1.0f);
    }
    INLINE bool has_peaks() const { return !peaks_.empty(); }

    INLINE void draw_peaks(Index ad) {
        const T* __restrict row = values_ + ad * contexts_;
        const float* __restrict steps = steps_.data();
        float* __restrict most = most_.data();
        std::uint8_t* __restrict out = peaks_.data() + ad * groups_;
        const Index groups = groups_;
        for (Index g = 0; g < groups; ++g) most[g] = 0;
        for (Index start = 0; start < contexts_; start += groups) {
            const Index size = std::min(groups, contexts_ - start);
            for (Index g = 0; g < size; ++g) {
                const float own = static_cast<float>(row[start + g]) * steps[start + g];
                most[g] = own > most[g] ? own : most[g];
            }
        }
        for (Index g = 0; g < groups; ++g) {
            const float peak = most[g] + ROUND_UP;
            out[g] = static_cast<std::uint8_t>(static_cast<std::int32_t>(peak < 255.0f ? peak : 255.0f));
        }
    }

    INLINE void fetch_peaks(Index first, Index end) const {
        if (has_peaks() && first < end) prefetch(peaks_.data() + first * groups_, (end - first) * groups_);
    }

    // At least the gain of an ad; infinite where it reaches the scale.
    INLINE double peak_bound(Index ad) const {
        const std::uint8_t* peak = peaks_.data() + ad * groups_;
        const float* table = table_.data();
        double sums[4] = {};  // so that a sum does not wait for the one before
        for (Index g = 0; g < groups_; g += 4, table += 4 * STEPS, peak += 4)
            for (int j = 0; j < 4; ++j) sums[j] += static_cast<double>(table[j * STEPS + peak[j]]);
        const double sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
        return (sum * unit_ + slack_) * (1 + 1e-5);  // the table is in single precision
    }

    // table_[g][q]: what group g gains where all of it has q steps, in units; anew where the best has risen.
    INLINE void fill_table(const double* best) {
        for (Index g = 0; g < groups_; ++g) {
            bool risen = false;
            for (Index c = g; c < contexts_; c += groups_) {
                const auto low = static_cast<float>(best_steps(best, c));
                risen |= low != tabled_[c];
                tabled_[c] = low;
            }
            if (!risen) continue;
            float* __restrict out = table_.data() + g * STEPS;
            for (int q = 0; q < STEPS; ++q) out[q] = 0;
            for (Index c = g; c < contexts_; c += groups_) {
                const float own = whole_[c], low = tabled_[c];
                for (int q = 0; q < STEPS; ++q) {
                    const float above = static_cast<float>(q) - low;
                    out[q] += own * (above > 0 ? above : 0);
                }
            }
            out[STEPS - 1] = std::numeric_limits<float>::infinity();
        }
    }

    INLINE bool has(Index ad) const { return rows_ && place_[ad] >= 0; }

    // Rows lie one after another: a system clears memory where it is first touched, in pages of up to 2 MB, and would
    // clear all of the room for a few rows here and there.
    INLINE void draw(Index ad) {
        if (!rows_) return;
        const auto place = static_cast<Index>(excess_.size());
        const T* __restrict row = values_ + ad * contexts_;
        std::uint8_t* __restrict out = rows_ + place * contexts_;
        const float *__restrict scale = scale_.data(), *__restrict steps = steps_.data();
        const Index contexts = contexts_;
        for (Index c = 0; c < contexts; ++c) {
            const float own = static_cast<float>(row[c]);
            const float step = own * steps[c] + ROUND_UP;
            out[c] = static_cast<std::uint8_t>(static_cast<std::int32_t>(step < 255.0f ? step : 255.0f));
        }
        std::uint8_t most = 0;
        for (Index c = 0; c < contexts; ++c) most = out[c] > most ? out[c] : most;
        double excess = 0;
        if (most == 255 || !all_scaled_)
            for (Index c = 0; c < contexts; ++c)
                if (row[c] > scale[c]) excess += weight_[c] * (static_cast<double>(row[c]) - scale[c]);
        place_[ad] = static_cast<std::int32_t>(place);
        excess_.push_back(excess);
    }

    // At least the gain of an ad that was drawn.
    INLINE double bound(Index ad) const {
        const Index place = place_[ad];
        const std::uint8_t *__restrict row = rows_ + place * contexts_, *__restrict best = best_.data();
        const std::int16_t* __restrict whole = whole_.data();
        double sum = 0;
        for (Index start = 0; start < contexts_; start += CHUNK) {
            const Index end = std::min(contexts_, start + CHUNK);
            std::int32_t part = 0;
            for (Index c = start; c < end; ++c) {
                const std::uint8_t higher = row[c] > best[c] ? row[c] : best[c];
                const auto above = static_cast<std::int16_t>(static_cast<std::uint8_t>(higher - best[c]));
                part += above * whole[c];
            }
            sum += part;
        }
        return (sum * unit_ + excess_[place] + slack_) * (1 + 1e-9);
    }

    INLINE void raise(const double* best) {
        if (!rows_) return;
        if (has_peaks()) fill_table(best);
        for (Index c = 0; c < contexts_; ++c) {
            best_[c] = static_cast<std::uint8_t>(best_steps(best, c));
        }
    }
};

}  // namespace
