/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/fits_stages.h"

#include <errno.h>

#include "topology/job/stage.h"

static int check_given(const struct plait_job_config *c,
                       struct plait_error *err)
{
    const struct plait_numbers *given = &c->parallel.stages;
    int64_t sum = 0;

    for (int i = 0; i < given->n; i++) {
        sum += given->at[i];
        if (given->at[i] == 0 && i > 0 && i < given->n - 1)
            return plait_errorf(err,
                                "parallel.stages: stage %d of %d has no "
                                "layer; only the first, which has the "
                                "embedding, and the last, which has the head, "
                                "can do without",
                                i + 1, given->n);
    }
    if (sum == c->model.layers)
        return 0;
    return plait_errorf(err,
                        "parallel.stages: its %d stage%s %lld layers, and "
                        "model.layers is %d",
                        given->n, given->n == 1 ? " has" : "s have",
                        (long long)sum, c->model.layers);
}

int plait_fits_stages(const struct plait_job_config *config,
                      struct plait_error *err)
{
    errno = EINVAL;
    if (!config->parallel.stages.n)
        return 0;
    if (plait_is_image_model(&config->model))
        return plait_errorf(err, "parallel.stages: the blocks of an image "
                                 "model differ; it has no such key");
    return check_given(config, err);
}

int plait_fits_stages_layout(const struct plait_job_config *config,
                             const struct plait_layout *layout,
                             struct plait_error *err)
{
    int pp = layout->size[PLAIT_PP];
    int chunks = plait_model_chunks(&config->parallel);
    int given = config->parallel.stages.n;

    errno = EINVAL;
    if (given && given != (int64_t)pp * chunks)
        return plait_errorf(err,
                            "parallel.stages has %d stage%s, but pp %d * "
                            "parallel.virtual %d are %lld",
                            given, given == 1 ? "" : "s", pp, chunks,
                            (long long)pp * chunks);
    if (config->model.layers + 2 < (int64_t)pp * chunks)
        return plait_errorf(err,
                            "model.layers %d must be at least %lld, pp %d * "
                            "parallel.virtual %d - 2; only the embedding and "
                            "the head can be stages of their own",
                            config->model.layers, (long long)pp * chunks - 2,
                            pp, chunks);
    return plait_fits_stages(config, err);
}
