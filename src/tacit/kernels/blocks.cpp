// Optimizers over a block of a table, every entry alike. A block's noise is added to its gradient just before, so that
// it is still in cache. `reference_training.py` says the same in NumPy, `training.py` what each argument is.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cmath>

#include "wide.h"

namespace nb = nanobind;

namespace {

using Block = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

INLINE void sgd(float* __restrict w, float* __restrict v, Index size, float rate, float momentum) {
    for (Index k = 0; k < size; ++k) {
        w[k] -= rate * v[k];
        v[k] *= momentum;
    }
}

// An L2 penalty pulls embeddings and leaves linear weights alone. Rows lie side by side, the linear weight first, so
// that a `width` of 0 means a block without rows: nothing is pulled.
struct Penalty {
    float shrink;
    Index width;
};

// Runs `entry(k, gradient)` over a block, where the gradient has its penalty; clears what was gathered.
template <class Entry>
INLINE void each(const float* w, float* __restrict gradient, Index size, const Penalty& penalty, const Entry& entry) {
    const Index width = penalty.width ? penalty.width : size;
    const float shrink = penalty.width ? penalty.shrink : 0.0f;
    for (Index start = 0; start < size; start += width) {
        if (penalty.width) {
            entry(start, gradient[start]);
            gradient[start] = 0.0f;
        }
        for (Index k = start + (penalty.width ? 1 : 0); k < start + width; ++k) {
            entry(k, gradient[k] + shrink * w[k]);
            gradient[k] = 0.0f;
        }
    }
}

// Worked out in double precision: 1 - beta in floats would be off by 5e-5 of itself at beta = .999.
struct Moments {
    float beta1, fresh1, beta2, fresh2, scale1, scale2, epsilon;
};

Moments moments_of(double rate, double beta1, double beta2, double epsilon, double correction1, double correction2) {
    return {float(beta1), float(1 - beta1), float(beta2), float(1 - beta2), float(rate / correction1),
            float(1 / correction2), float(epsilon)};
}

template <bool YOGI>
INLINE void adaptive(float* __restrict w, float* __restrict first, float* __restrict second,
                     float* __restrict gradient, Index size, const Moments& moments, const Penalty& penalty) {
    each(w, gradient, size, penalty, [&](Index k, float g) INLINE_LAMBDA {
        const float square = g * g;
        const float m = moments.beta1 * first[k] + moments.fresh1 * g;
        float s = second[k];
        if (YOGI)
            s = s > square ? s - moments.fresh2 * square : (s < square ? s + moments.fresh2 * square : s);
        else
            s = moments.beta2 * s + moments.fresh2 * square;
        first[k] = m;
        second[k] = s;
        w[k] -= moments.scale1 * m / (std::sqrt(moments.scale2 * s) + moments.epsilon);
    });
}

INLINE void rmsprop(float* __restrict w, float* __restrict second, float* __restrict gradient, Index size,
                    float rate, float decay, float fresh, float epsilon, const Penalty& penalty) {
    each(w, gradient, size, penalty, [&](Index k, float g) INLINE_LAMBDA {
        const float s = decay * second[k] + fresh * (g * g);
        second[k] = s;
        w[k] -= rate * g / (std::sqrt(s) + epsilon);
    });
}

void sgd_block(Block weights, Block velocity, float rate, float momentum, bool wide) {
    float* w = weights.data();
    float* v = velocity.data();
    const Index size = static_cast<Index>(weights.shape(0));
    nb::gil_scoped_release free;
    run(wide, [&]() INLINE_LAMBDA { sgd(w, v, size, rate, momentum); });
}

template <bool YOGI>
void adaptive_block(Block weights, Block first, Block second, Block gradient, double rate, double beta1,
                    double beta2, double epsilon, double correction1, double correction2, float shrink,
                    Index width, bool wide) {
    float *w = weights.data(), *m = first.data(), *s = second.data(), *g = gradient.data();
    const Index size = static_cast<Index>(weights.shape(0));
    const Moments moments = moments_of(rate, beta1, beta2, epsilon, correction1, correction2);
    const Penalty penalty{shrink, width};
    nb::gil_scoped_release free;
    run(wide, [&]() INLINE_LAMBDA { adaptive<YOGI>(w, m, s, g, size, moments, penalty); });
}

void rmsprop_block(Block weights, Block second, Block gradient, float rate, double decay, float epsilon,
                   float shrink, Index width, bool wide) {
    float *w = weights.data(), *s = second.data(), *g = gradient.data();
    const Index size = static_cast<Index>(weights.shape(0));
    const Penalty penalty{shrink, width};
    const auto kept = static_cast<float>(decay), fresh = static_cast<float>(1 - decay);
    nb::gil_scoped_release free;
    run(wide, [&]() INLINE_LAMBDA { rmsprop(w, s, g, size, rate, kept, fresh, epsilon, penalty); });
}

template <class Function>
void define_adaptive(nb::module_& module, const char* name, Function function) {
    using nb::arg;
    module.def(name, function, arg("weights").noconvert(), arg("first").noconvert(), arg("second").noconvert(),
               arg("gradient").noconvert(), arg("rate"), arg("beta1"),
               arg("beta2"), arg("epsilon"), arg("correction1"), arg("correction2"), arg("shrink"), arg("width"),
               arg("wide") = true);
}

}  // namespace

NB_MODULE(_blocks, module) {
    using nb::arg;
    module.def("sgd_block", &sgd_block, arg("weights").noconvert(), arg("velocity").noconvert(), arg("rate"),
               arg("momentum"), arg("wide") = true);
    define_adaptive(module, "adam_block", &adaptive_block<false>);
    define_adaptive(module, "yogi_block", &adaptive_block<true>);
    module.def("rmsprop_block", &rmsprop_block, arg("weights").noconvert(), arg("second").noconvert(),
               arg("gradient").noconvert(), arg("rate"), arg("decay"),
               arg("epsilon"), arg("shrink"), arg("width"), arg("wide") = true);
}
