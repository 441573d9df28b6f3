/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "optim_job.h"

/* Steps of an optimizer with random gradients, for peers.py to repeat with
 * other implementations. Writes a line for each tensor, an empty line, then
 * fp32: all initial weights, all gradients of each step, all final weights.
 *
 * optim_steps CONFIG.yaml STEPS SEED OUT */

static int open_job(struct optim_job *job, const char *path, uint64_t seed,
                    struct plait_error *err)
{
    struct plait_job_config *config;
    char *text = NULL;
    size_t size = 0;

    if (plait_job_config_read(path, &text, &size, err) < 0)
        return -1;
    config = plait_job_config_parse(path, text, size, NULL, 0, err);
    free(text);
    return optim_job_open(job, config, plait_ops_cpu(), 1, seed, err);
}

static void write_tensors(const struct optim_job *job, FILE *out)
{
    for (int i = 0; i < job->nslices; i++) {
        const struct plait_tensor *t = job->slices[i].tensor;

        fprintf(out, "%s %d %zu %zu %d %d\n", t->name, t->ndim, t->shape[0],
                t->shape[1], t->decay, t->layer);
    }
    fprintf(out, "\n");
}

/* The elements without the vocabulary's padding rows. */
static size_t count_of(const struct plait_optim_slice *s)
{
    return s->tensor->shape[0] * s->tensor->shape[1];
}

static void write_weights(const struct optim_job *job, FILE *out)
{
    for (int i = 0; i < job->nslices; i++)
        fwrite(job->slices[i].master, sizeof(float), count_of(&job->slices[i]),
               out);
}

static float random_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 40) * 0x1p-24 - 0.45);
}

static void make_gradients(const struct optim_job *job, uint64_t *state,
                           FILE *out)
{
    for (int i = 0; i < job->nslices; i++) {
        const struct plait_optim_slice *s = &job->slices[i];
        float *grad =
            job->model->regions[s->tensor->region].grad + s->tensor->offset;

        memset(grad, 0, s->count * sizeof(*grad));
        for (size_t k = 0; k < count_of(s); k++)
            grad[k] = random_number(state);
        fwrite(grad, sizeof(*grad), count_of(s), out);
    }
}

int main(int argc, char **argv)
{
    struct optim_job job = {0};
    struct plait_error err = {""};
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    FILE *out = argc > 4 ? fopen(argv[4], "wb") : NULL;
    int rc = out ? open_job(&job, argv[1], seed, &err) : -1;

    if (rc < 0) {
        fprintf(stderr, "optim_steps: %s\n", out ? err.text : "no output");
        return 1;
    }
    write_tensors(&job, out);
    write_weights(&job, out);
    for (int step = 1; step <= atoi(argv[2]) && rc == 0; step++) {
        make_gradients(&job, &seed, out);
        rc = plait_optim_step(job.optim, job.config->optim.lr, 1, step);
    }
    write_weights(&job, out);
    optim_job_close(&job);
    return fclose(out) == 0 && rc == 0 ? 0 : 1;
}
