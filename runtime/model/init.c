/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "kernels/philox.h"
#include "runtime/model/internal.h"
#include "topology/base/hash.h"

/* Initial weights: random numbers as a function of seed, tensor name and
 * element, so that a shard can be initialised without its neighbours. */

/* Box-Muller: turns two uniform numbers in (0, 1) into two normal ones. */
static void normal_pair(uint32_t a, uint32_t b, double out[2])
{
    double r = sqrt(-2 * log((a + 0.5) * 0x1p-32));
    double angle = 2 * M_PI * ((b + 0.5) * 0x1p-32);

    out[0] = r * cos(angle);
    out[1] = r * sin(angle);
}

/* What the random numbers of a tensor depend on besides the element. */
struct random_key {
    uint64_t seed, name; /* name: the hash of the tensor's */
};

/* Elements [first, first + n) of the whole tensor. One Philox block gives
 * elements 4i .. 4i+3. */
static void normal_run(struct random_key key, uint64_t first, size_t n,
                       double std, float *out)
{
    for (uint64_t i = first / 4; i * 4 < first + n; i++) {
        uint32_t x[4];
        double z[4];

        plait_philox(key.seed, i, key.name, x);
        normal_pair(x[0], x[1], z);
        normal_pair(x[2], x[3], z + 2);
        for (uint64_t j = 0; j < 4; j++) {
            uint64_t at = i * 4 + j;

            if (at >= first && at < first + n)
                out[at - first] = std * z[j];
        }
    }
}

/* Elements [col, col + n) of a row of the whole tensor. */
static void init_row(const struct plait_tensor *t, struct random_key key,
                     size_t row, size_t col, size_t n, float *out)
{
    if (row >= t->shape[0])
        memset(out, 0, n * sizeof(*out));
    else if (t->init_std > 0)
        normal_run(key, row * t->shape[1] + col, n, t->init_std, out);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = t->init_const;
}

void plait_model_init_tensor(const struct plait_tensor *t, uint64_t seed,
                             size_t first, size_t count, float *out)
{
    struct random_key key = {
        .seed = seed, .name = plait_hash_text(PLAIT_HASH_START, t->name)};
    size_t cols = t->local_shape[1], end = first + count, n;
    size_t row0 = t->tp_axis == 0 ? t->local_first : 0;
    size_t col0 = t->tp_axis == 1 ? t->local_first : 0;

    for (size_t at = first; at < end; at += n, out += n) {
        size_t col = at % cols;

        n = cols - col < end - at ? cols - col : end - at;
        init_row(t, key, row0 + at / cols, col0 + col, n, out);
    }
}

int plait_model_make_weights(struct plait_model *model, size_t elements)
{
    size_t bytes = elements * plait_dtype_size(model->type);

    if (model->weights)
        plait_mesh_free(model->mesh, model->weights);
    model->weights = plait_mesh_alloc(model->mesh, bytes ? bytes : 1);
    if (!model->weights || !model->nexact)
        return model->weights ? 0 : -1;
    bytes = model->nexact * sizeof(*model->exact);
    if (!model->exact)
        model->exact = plait_mesh_alloc(model->mesh, bytes);
    return model->exact ? model->mesh->ops->fill_zero(model->mesh->q,
                                                      model->exact, bytes)
                        : -1;
}
